import { Text, Tooltip } from "@mantine/core";
import type { Device } from "@/shared/api/types";
import { bytes, celsius, percent, watts } from "@/shared/format";
import { AnchorLink } from "@/shared/ui/links";
import { Meter } from "@/shared/ui/meter";
import classes from "./nodes.module.css";

interface Props {
  node: string;
  devices: Device[];
  /** Names of jobs, by their ids. */
  names: Map<string, string>;
}

export function DeviceTable({ node, devices, names }: Props) {
  const hasSensors = devices.some((device) => device.temperature !== null || device.power !== null);
  return (
    <div className={classes.scroll}>
      <table className={`app-table ${classes.devices}`} aria-label={`Devices of ${node}`}>
        <thead>
          <tr>
            <th scope="col">Device</th>
            <th scope="col">Job</th>
            <th scope="col">Utilisation</th>
            <th scope="col">Memory</th>
            {hasSensors ? (
              <>
                <th scope="col" className="right">
                  Temperature
                </th>
                <th scope="col" className="right">
                  Power
                </th>
              </>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {devices.map((device) => (
            <tr key={device.index}>
              <td>
                <span className="numbers">{device.index}</span> {deviceName(device)}
                {device.gone ? <Gone /> : null}
              </td>
              <td>
                <Holder device={device} names={names} />
              </td>
              <td>
                <Meter
                  label={`Utilisation of device ${device.index}`}
                  value={device.utilization}
                  text={percent(device.utilization)}
                />
              </td>
              <td>
                <Meter
                  label={`Memory of device ${device.index}`}
                  value={share(device.memory_used, device.memory_total)}
                  text={`${bytes(device.memory_used)} / ${bytes(device.memory_total)}`}
                  warnAt={95}
                />
              </td>
              {hasSensors ? (
                <>
                  <td className="right">{celsius(device.temperature)}</td>
                  <td className="right">{watts(device.power)}</td>
                </>
              ) : null}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Gone() {
  return (
    <Tooltip label="Its host does not have it any more. It goes once its job has given it back.">
      <Text span size="sm" c="dimmed">
        , gone
      </Text>
    </Tooltip>
  );
}

function Holder({ device, names }: { device: Device; names: Map<string, string> }) {
  if (!device.job_id) {
    return (
      <Text span size="sm" c="dimmed">
        free
      </Text>
    );
  }
  return (
    <AnchorLink
      to="/jobs/$jobId"
      params={{ jobId: device.job_id }}
      size="sm"
      className={classes.holder ?? ""}
    >
      {names.get(device.job_id) ?? device.job_id.slice(0, 12)}
    </AnchorLink>
  );
}

function deviceName(device: Device): string {
  return device.kind === "cpu" ? device.name || "CPU slot" : device.name;
}

export function share(used: number | null | undefined, total: number | null | undefined) {
  return used === null || used === undefined || !total ? null : (100 * used) / total;
}
