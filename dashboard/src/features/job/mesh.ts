/** The part of a job's spec that says how its model is spread. */
export interface Parallelism {
  strategy?: string;
  data?: number | null;
  shard?: number | null;
  tensor?: number | null;
  pipeline?: number | null;
  servers?: number | null;
  schedule?: string;
  microbatches?: number | null;
  gradient_sync?: { algorithm?: string; compression?: string } | null;
}

/** In the order of the mesh, outermost first. */
const NAMES = ["data", "pipeline", "shard", "tensor"] as const;
type Name = (typeof NAMES)[number];

/** The degree that takes the workers which the given ones leave. */
const REST: Record<string, Name> = {
  ddp: "data",
  fsdp: "shard",
  tensor: "tensor",
  pipeline: "pipeline",
  model: "pipeline",
};

/** The sizes of the mesh of ranks, as "data 2 × tensor 4"; empty for a single rank. */
export function meshOf(parallelism: Parallelism, workers: number): string {
  const { strategy = "", servers } = parallelism;
  const beside = strategy === "parameter_server" ? (servers ?? 1) : 0;
  const sizes = new Map<Name, number>();
  for (const name of NAMES) sizes.set(name, parallelism[name] ?? 1);
  const rest = beside > 0 ? "data" : REST[strategy];
  if (rest !== undefined && typeof parallelism[rest] !== "number") {
    const given = [...sizes.values()].reduce((product, size) => product * size, 1);
    sizes.set(rest, Math.max(1, Math.floor((workers - beside) / given)));
  }
  const told = [...sizes].filter(([, size]) => size > 1).map(([name, size]) => `${name} ${size}`);
  const mesh = told.join(" × ");
  if (beside === 0) return mesh;
  return `${mesh || "data 1"} + ${beside} ${beside === 1 ? "server" : "servers"}`;
}

/** How a pipeline is filled: "1f1b, 8 micro-batches"; empty for what has none. */
export function scheduleOf({ strategy, schedule, microbatches }: Parallelism): string {
  if (strategy !== "pipeline" || !schedule) return "";
  return microbatches ? `${schedule}, ${microbatches} micro-batches` : schedule;
}

/** How gradients are combined, where it is not the way that PyTorch has. */
export function syncOf({ gradient_sync }: Parallelism): string {
  const { algorithm = "native", compression = "none" } = gradient_sync ?? {};
  const told = [
    ...(algorithm === "native" ? [] : [algorithm]),
    ...(compression === "none" ? [] : [compression]),
  ];
  return told.length === 0 ? "" : `gradients by ${told.join(", ")}`;
}
