import type { Job } from "./api/types";
import { duration } from "./format";
import { useToldNow } from "./now";

type Ran = Pick<Job, "ran_seconds" | "running_since">;

/** How long a job's attempts ran, in seconds: pauses and waits between them do not count. */
export function ranSeconds({ ran_seconds, running_since }: Ran, now: number): number {
  const present = running_since === null ? 0 : (now - Date.parse(running_since)) / 1000;
  return Math.round(ran_seconds + Math.max(0, present));
}

/** How long a job runs, or ran: "3 min 20 s so far". */
export function useElapsed(job: Job): string {
  return useToldNow((now) => {
    if (job.started_at === null) return "not started";
    const told = duration(ranSeconds(job, now));
    return job.finished_at === null ? `${told} so far` : told;
  });
}
