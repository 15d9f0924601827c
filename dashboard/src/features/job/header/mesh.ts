import type { ParallelismSpec } from "@/client";

/** The mesh's dimensions, outermost first. */
const NAMES = ["data", "pipeline", "shard", "tensor"] as const;
type Name = (typeof NAMES)[number];

/** The dimension that takes the workers which the given sizes leave. */
const REMAINDER: Record<string, Name> = {
  ddp: "data",
  fsdp: "shard",
  tensor: "tensor",
  pipeline: "pipeline",
  model: "pipeline",
};

/** The sizes of the mesh of ranks, as "data 2 × tensor 4"; empty for a single rank. */
export function meshOf(parallelism: ParallelismSpec, workers: number): string {
  const { strategy = "", servers } = parallelism;
  const numServers = strategy === "parameter_server" ? (servers ?? 1) : 0;
  const sizes = new Map<Name, number>();
  for (const name of NAMES) sizes.set(name, parallelism[name] ?? 1);
  const open = numServers > 0 ? "data" : REMAINDER[strategy];
  if (open !== undefined && typeof parallelism[open] !== "number") {
    const given = [...sizes.values()].reduce((product, size) => product * size, 1);
    sizes.set(open, Math.max(1, Math.floor((workers - numServers) / given)));
  }
  const mesh = [...sizes]
    .filter(([, size]) => size > 1)
    .map(([name, size]) => `${name} ${size}`)
    .join(" × ");
  if (numServers === 0) return mesh;
  return `${mesh || "data 1"} + ${numServers} ${numServers === 1 ? "server" : "servers"}`;
}

/** A pipeline's schedule, as "1f1b, 8 micro-batches"; empty for other strategies. */
export function scheduleOf({ strategy, schedule, microbatches }: ParallelismSpec): string {
  if (strategy !== "pipeline" || !schedule) return "";
  return microbatches ? `${schedule}, ${microbatches} micro-batches` : schedule;
}

/** Gradient sync where it is not PyTorch's own; else empty. */
export function syncOf({ gradient_sync }: ParallelismSpec): string {
  const { algorithm = "native", compression = "none" } = gradient_sync ?? {};
  const parts = [
    ...(algorithm === "native" ? [] : [algorithm]),
    ...(compression === "none" ? [] : [compression]),
  ];
  return parts.length === 0 ? "" : `gradient sync ${parts.join(", ")}`;
}
