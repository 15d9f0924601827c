import type { Job } from "@/shared/api/types";

/** The job's name, with its id where others have the same name. */
export function labelOf(job: Job, among: readonly Job[]): string {
  const isUnique = among.every((other) => other.id === job.id || other.name !== job.name);
  return isUnique ? job.name : `${job.name} (${job.id.slice(0, 6)})`;
}
