import { Text, Tooltip } from "@mantine/core";
import type { Device } from "@/shared/api/types";
import { bytes, celsius, percent, watts } from "@/shared/format";
import { JobLink } from "@/shared/owners/job-link";
import { type Column, Table } from "@/shared/table/table";
import { Meter } from "@/shared/ui/meter";
import classes from "./nodes.module.css";

const COLUMNS: Column<Device>[] = [
  {
    id: "device",
    header: "Device",
    cell: (device) => (
      <>
        <span className="numbers">{device.index}</span> {deviceName(device)}
        {device.gone ? <Gone /> : null}
      </>
    ),
  },
  { id: "job", header: "Job", cell: (device) => <Holder device={device} /> },
  {
    id: "utilization",
    header: "Utilization",
    cell: (device) => (
      <Meter
        label={`Utilization of device ${device.index}`}
        value={device.utilization}
        text={percent(device.utilization)}
      />
    ),
  },
  {
    id: "memory",
    header: "Memory",
    cell: (device) => (
      <Meter
        label={`Memory of device ${device.index}`}
        value={share(device.memory_used, device.memory_total)}
        text={`${bytes(device.memory_used)} / ${bytes(device.memory_total)}`}
        warnAt={95}
      />
    ),
  },
];

const SENSORS: Column<Device>[] = [
  {
    id: "temperature",
    header: "Temperature",
    right: true,
    cell: (device) => celsius(device.temperature),
  },
  { id: "power", header: "Power", right: true, cell: (device) => watts(device.power) },
];

export function DeviceTable({ node, devices }: { node: string; devices: Device[] }) {
  const hasSensors = devices.some((device) => device.temperature !== null || device.power !== null);
  return (
    <Table
      label={`Devices of ${node}`}
      columns={hasSensors ? [...COLUMNS, ...SENSORS] : COLUMNS}
      rows={devices}
      rowKey={(device) => device.index}
      className={classes.devices}
      bare
      cards
    />
  );
}

interface HolderProps {
  device: Device;
}

function Gone() {
  return (
    <Tooltip label="Its host no longer reports it. It is removed once its job releases it.">
      <Text span size="sm" c="dimmed">
        , gone
      </Text>
    </Tooltip>
  );
}

function Holder({ device: { busy, job_id, job_name, job_user, job_project } }: HolderProps) {
  if (!busy) {
    return (
      <Text span size="sm" c="dimmed">
        free
      </Text>
    );
  }
  const owner = [job_user, job_project].filter((name) => name !== null).join(" · ");
  return (
    <div className={classes.holder}>
      <JobLink id={job_id} name={job_name} />
      {owner === "" ? null : <p className="small dimmed">{owner}</p>}
    </div>
  );
}

function deviceName(device: Device): string {
  return device.kind === "cpu" ? device.name || "CPU slot" : device.name;
}

export function share(used: number | null | undefined, total: number | null | undefined) {
  return used === null || used === undefined || !total ? null : (100 * used) / total;
}
