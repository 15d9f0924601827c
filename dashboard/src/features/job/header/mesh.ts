import type { ParallelismSpec } from "@/client";
import { plural } from "@/shared/format";

/** The sizes of the mesh of ranks, as "data 2 × tensor 4"; empty for a single rank. */
export function meshText({ servers = 0, ...sizes }: Record<string, number>): string {
  const mesh = Object.entries(sizes)
    .filter(([, size]) => size > 1)
    .map(([name, size]) => `${name} ${size}`)
    .join(" × ");
  return servers === 0 ? mesh : `${mesh || "data 1"} + ${plural(servers, "server")}`;
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
