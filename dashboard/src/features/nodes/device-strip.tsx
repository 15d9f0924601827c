import { type Device, FOREIGN_JOB } from "@/shared/api/types";
import { percent } from "@/shared/format";
import classes from "./nodes.module.css";

/** One cell a device: filled by its utilization, empty and pale when it is free. */
export function DeviceStrip({ devices }: { devices: readonly Device[] }) {
  const busy = devices.filter(({ busy }) => busy).length;
  return (
    <div
      className={classes.strip}
      role="img"
      aria-label={`${busy} of ${devices.length} devices busy`}
    >
      {devices.map((device) => (
        <span key={device.index} className={classes.cell} data-busy={device.busy}>
          <span style={{ height: `${device.utilization ?? 0}%` }} />
        </span>
      ))}
    </div>
  );
}

/** The same in words, a line a device, for a tooltip. */
export function DeviceLines({ devices }: { devices: readonly Device[] }) {
  return devices.map(({ index, busy, job_name, utilization, gone }) => (
    <div key={index}>
      {index}: {busy ? (job_name ?? FOREIGN_JOB) : "free"}, {gone ? "gone" : percent(utilization)}
    </div>
  ));
}
