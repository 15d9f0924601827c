import { Text, Tooltip } from "@mantine/core";
import { type Device, FOREIGN_JOB } from "@/shared/api/types";
import { bytes, celsius, percent, watts } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { AnchorLink } from "@/shared/ui/links";
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

function Gone() {
  return (
    <Tooltip label="Its host no longer reports it. It is removed once its job releases it.">
      <Text span size="sm" c="dimmed">
        , gone
      </Text>
    </Tooltip>
  );
}

function Holder({ device }: { device: Device }) {
  if (!device.job_id) {
    return (
      <Text span size="sm" c="dimmed">
        {device.busy ? FOREIGN_JOB : "free"}
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
      {device.job_name}
    </AnchorLink>
  );
}

function deviceName(device: Device): string {
  return device.kind === "cpu" ? device.name || "CPU slot" : device.name;
}

export function share(used: number | null | undefined, total: number | null | undefined) {
  return used === null || used === undefined || !total ? null : (100 * used) / total;
}
