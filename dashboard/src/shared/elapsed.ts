import type { Job } from "./api/types";
import { duration, secondsBetween } from "./format";
import { useToldNow } from "./now";

/** How long a job runs, or ran, from its first start: "3 min 20 s so far". */
export function useElapsed({ started_at, finished_at }: Job): string {
  return useToldNow((now) => {
    if (started_at === null) return "not started";
    if (finished_at !== null) return duration(secondsBetween(started_at, finished_at));
    return `${duration(Math.round((now - Date.parse(started_at)) / 1000))} so far`;
  });
}
