import type { ClusterNode, Device } from "@/shared/api/types";

/** Totals over the devices of a node; null where none reports it. */
interface Sums {
  utilization: number | null;
  memoryUsed: number;
  memoryTotal: number;
  hottest: number | null;
  power: number | null;
}

export function summed(devices: readonly Device[]): Sums {
  const known = (values: (number | null | undefined)[]): number[] =>
    values.filter((value) => typeof value === "number");
  const sum = (values: number[]): number => values.reduce((all, value) => all + value, 0);
  const utilization = known(devices.map((device) => device.utilization));
  const temperatures = known(devices.map((device) => device.temperature));
  const powers = known(devices.map((device) => device.power));
  return {
    utilization: utilization.length > 0 ? sum(utilization) / utilization.length : null,
    memoryUsed: sum(known(devices.map((device) => device.memory_used))),
    memoryTotal: sum(known(devices.map((device) => device.memory_total))),
    hottest: temperatures.length > 0 ? Math.max(...temperatures) : null,
    power: powers.length > 0 ? sum(powers) : null,
  };
}

interface JobOnNode {
  /** Null, as is its name: jobs of other projects, which count as one. */
  id: string | null;
  name: string | null;
  /** How many devices of the node it holds. */
  devices: number;
}

/** The jobs that hold devices, in the order of the devices. */
export function jobsOn(devices: readonly Device[]): JobOnNode[] {
  const jobs = new Map<string | null, JobOnNode>();
  for (const { busy, job_id: id, job_name: name } of devices) {
    if (!busy) continue;
    const devices = (jobs.get(id)?.devices ?? 0) + 1;
    jobs.set(id, { id, name: name ?? id, devices });
  }
  return [...jobs.values()];
}

/** Whether a text is part of a node's name, state, address or labels, or of a job on it. */
export function isAbout(node: ClusterNode, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  const texts = [
    node.name,
    node.state,
    node.address ?? "",
    ...Object.entries(node.labels).map(([key, value]) => `${key}=${String(value)}`),
    ...jobsOn(node.devices).flatMap(({ id, name }) => [id ?? "", name ?? ""]),
  ];
  return wanted === "" || texts.some((each) => each.toLowerCase().includes(wanted));
}
