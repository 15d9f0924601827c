import type { Resize } from "@/client";
import type { Job } from "@/shared/api/types";
import { plural } from "@/shared/format";

/** The least and the most workers of a job; a field of a form may hold no number. */
export interface WorkerRange<N = number> {
  min: N;
  max: N;
}

/** The workers that a job's spec requests. */
export function requestedWorkers(job: Pick<Job, "spec" | "world_size">): WorkerRange {
  const { workers, min_workers, max_workers } = (job.spec?.resources ?? {}) as {
    workers?: number;
    min_workers?: number;
    max_workers?: number;
  };
  const fixed = workers ?? job.world_size;
  return { min: min_workers ?? fixed, max: max_workers ?? fixed };
}

export function isRange(range: WorkerRange<number | string>): range is WorkerRange {
  const { min, max } = range;
  return typeof min === "number" && typeof max === "number" && min >= 1 && min <= max;
}

/** The body of a resize request; equal ends are a fixed number. */
export function resizeRequest({ min, max }: WorkerRange): Resize {
  return min === max ? { workers: min } : { min_workers: min, max_workers: max };
}

export function rangeText({ min, max }: WorkerRange): string {
  return min === max ? plural(min, "worker") : `${min} to ${plural(max, "worker")}`;
}
