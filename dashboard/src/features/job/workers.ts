import type { Resize } from "@/client";
import type { Job } from "@/shared/api/types";
import { plural } from "@/shared/format";

/** Numbers of workers that a job can do with; a field of a form may hold no number. */
export interface Range<N = number> {
  least: N;
  most: N;
}

/** What a job's spec asks for. */
export function asked(job: Pick<Job, "spec" | "world_size">): Range {
  const { workers, min_workers, max_workers } = (job.spec.resources ?? {}) as {
    workers?: number;
    min_workers?: number;
    max_workers?: number;
  };
  const fixed = workers ?? job.world_size;
  return { least: min_workers ?? fixed, most: max_workers ?? fixed };
}

export function isRange(range: Range<number | string>): range is Range {
  const { least, most } = range;
  return typeof least === "number" && typeof most === "number" && least >= 1 && least <= most;
}

/** A range as it is asked for: one number is a fixed one. */
export function wish({ least, most }: Range): Resize {
  return least === most ? { workers: least } : { min_workers: least, max_workers: most };
}

export function fromTo({ least, most }: Range): string {
  return least === most ? plural(least, "worker") : `${least} to ${plural(most, "worker")}`;
}
