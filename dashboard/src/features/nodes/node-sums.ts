import type { ClusterNode, Device } from "@/shared/api/types";

/** What the devices of a node do together; null where none tells. */
export interface Sums {
  utilization: number | null;
  memoryUsed: number;
  memoryTotal: number;
  hottest: number | null;
  power: number | null;
}

export function summed(devices: readonly Device[]): Sums {
  const told = (values: (number | null | undefined)[]): number[] =>
    values.filter((value) => typeof value === "number");
  const sum = (values: number[]): number => values.reduce((all, value) => all + value, 0);
  const utilization = told(devices.map((device) => device.utilization));
  const temperatures = told(devices.map((device) => device.temperature));
  const powers = told(devices.map((device) => device.power));
  return {
    utilization: utilization.length > 0 ? sum(utilization) / utilization.length : null,
    memoryUsed: sum(told(devices.map((device) => device.memory_used))),
    memoryTotal: sum(told(devices.map((device) => device.memory_total))),
    hottest: temperatures.length > 0 ? Math.max(...temperatures) : null,
    power: powers.length > 0 ? sum(powers) : null,
  };
}

/** The jobs that hold devices, and how many each; in the order of the devices. */
export function jobsOn(devices: readonly Device[]): { id: string; devices: number }[] {
  const held = new Map<string, number>();
  for (const { job_id } of devices) if (job_id) held.set(job_id, (held.get(job_id) ?? 0) + 1);
  return [...held].map(([id, count]) => ({ id, devices: count }));
}

/** Whether a node has to do with a text: by its name, state, labels, or a job on it. */
export function isAbout(node: ClusterNode, text: string, names: Map<string, string>): boolean {
  const wanted = text.trim().toLowerCase();
  const told = [
    node.name,
    node.state,
    node.address ?? "",
    ...Object.entries(node.labels).map(([key, value]) => `${key}=${String(value)}`),
    ...jobsOn(node.devices).flatMap(({ id }) => [id, names.get(id) ?? ""]),
  ];
  return wanted === "" || told.some((each) => each.toLowerCase().includes(wanted));
}
