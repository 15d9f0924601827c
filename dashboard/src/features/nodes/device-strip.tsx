import type { Device } from "@/shared/api/types";
import { percent } from "@/shared/format";
import classes from "./nodes.module.css";

/** One cell a device: filled by its utilization, empty and pale when it is free. */
export function DeviceStrip({ devices }: { devices: readonly Device[] }) {
  const busy = devices.filter((device) => device.job_id).length;
  return (
    <div
      className={classes.strip}
      role="img"
      aria-label={`${busy} of ${devices.length} devices busy`}
    >
      {devices.map((device) => (
        <span key={device.index} className={classes.cell} data-busy={Boolean(device.job_id)}>
          <span style={{ height: `${device.utilization ?? 0}%` }} />
        </span>
      ))}
    </div>
  );
}

/** The same in words, a line a device, for a tooltip. */
export function DeviceLines({ devices }: { devices: readonly Device[] }) {
  return devices.map(({ index, job_name, utilization, gone }) => (
    <div key={index}>
      {index}: {job_name ?? "free"}, {gone ? "gone" : percent(utilization)}
    </div>
  ));
}
