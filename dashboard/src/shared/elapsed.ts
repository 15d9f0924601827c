import type { Job } from "./api/types";
import { duration } from "./format";
import { useDerivedNow } from "./now";

type Ran = Pick<Job, "ran_seconds" | "running_since">;

/** The run time of a job's attempts in seconds, without pauses and waits between them. */
export function ranSeconds({ ran_seconds, running_since }: Ran, now: number): number {
  const current = running_since === null ? 0 : (now - Date.parse(running_since)) / 1000;
  return Math.round(ran_seconds + Math.max(0, current));
}

/** The run time of a job: "3 min 20 s so far" while it runs. */
export function useElapsed(job: Job): string {
  return useDerivedNow((now) => {
    if (job.started_at === null) return "not started";
    const elapsed = duration(ranSeconds(job, now));
    return job.finished_at === null ? `${elapsed} so far` : elapsed;
  });
}
