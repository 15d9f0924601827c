import { Tooltip } from "@mantine/core";
import type { ClusterNode, Device } from "@/shared/api/types";
import { bytes, celsius, NOTHING, percent, watts } from "@/shared/format";
import { CloseIcon } from "@/shared/ui/icons";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { jobsOn, summed } from "./node-sums";
import classes from "./nodes.module.css";

interface Props {
  node: ClusterNode;
  /** Names of jobs, by their ids. */
  names: Map<string, string>;
  onOpen: () => void;
}

export const COLUMNS = [
  { label: "Node" },
  { label: "State" },
  { label: "Devices" },
  { label: "Jobs" },
  { label: "Utilisation", right: true },
  { label: "Device memory", right: true },
  { label: "Hottest", right: true },
  { label: "Power", right: true },
];

/** A node in one line: who holds its devices, and how hard they work. */
export function NodeRow({ node, names, onOpen }: Props) {
  const { devices } = node;
  const sums = summed(devices);
  return (
    <tr data-node={node.name}>
      <th scope="row">
        <button
          type="button"
          className={classes.opener}
          aria-expanded={false}
          aria-label={`Show the devices of ${node.name}`}
          onClick={onOpen}
        >
          <CloseIcon />
          {node.name}
        </button>
      </th>
      <td>
        <StateBadge state={node.state} reason={node.reason} />
      </td>
      <td>
        <Strip devices={devices} names={names} />
      </td>
      <td className={classes.jobs}>
        {jobsOn(devices).map(({ id, devices: held }) => (
          <span key={id}>
            <AnchorLink to="/jobs/$jobId" params={{ jobId: id }} inherit>
              {names.get(id) ?? id}
            </AnchorLink>
            {held > 1 ? ` × ${held}` : ""}
          </span>
        ))}
      </td>
      <td className="right">{percent(sums.utilization)}</td>
      <td className="right">
        {sums.memoryTotal > 0 ? `${bytes(sums.memoryUsed)} / ${bytes(sums.memoryTotal)}` : NOTHING}
      </td>
      <td className="right">{celsius(sums.hottest)}</td>
      <td className="right">{watts(sums.power)}</td>
    </tr>
  );
}

type StripProps = Pick<Props, "names"> & { devices: Device[] };

/** One cell a device: filled as high as it is used, empty and pale when it is free. */
function Strip({ devices, names }: StripProps) {
  const busy = devices.filter((device) => device.job_id).length;
  return (
    <Tooltip label={<Devices devices={devices} names={names} />} openDelay={200}>
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
    </Tooltip>
  );
}

function Devices({ devices, names }: StripProps) {
  return devices.map(({ index, job_id, utilization, gone }) => (
    <div key={index}>
      {index}: {job_id ? (names.get(job_id) ?? job_id) : "free"},{" "}
      {gone ? "gone" : percent(utilization)}
    </div>
  ));
}
