import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { Profile } from "@/client";
import {
  listProfilesOptions,
  listProfilesQueryKey,
  profileJobMutation,
} from "@/client/@tanstack/react-query.gen";
import { isActive, type Job } from "@/shared/api/types";

const POLL_MS = 5000;
const WAITING_MS = 1000;

export type { Profile, Trace } from "@/client";

/** Whether a profile has not ended, or its traces are still on their way. */
export function isUnderWay({ state, traces }: Pick<Profile, "state" | "traces">): boolean {
  return state === "requested" || state === "running" || traces.some(({ size }) => size === null);
}

const ofJob = (id: string) => ({ path: { job_id: id } });

/** Milliseconds until the profiles of a job are read again; false: they do not change any more. */
export function pollMs(
  job: Pick<Job, "running_since">,
  profiles: readonly Pick<Profile, "state" | "traces">[],
): number | false {
  const isWaiting = profiles.some(isUnderWay);
  if (isActive(job)) return isWaiting ? WAITING_MS : POLL_MS;
  // Hosts send the last traces when the ranks have ended; a lost host never does.
  return isWaiting && POLL_MS;
}

/** The profiles of a job, the newest first. */
export function useProfiles(job: Job) {
  return useQuery({
    ...listProfilesOptions(ofJob(job.id)),
    refetchInterval: ({ state: { data } }) => pollMs(job, data?.items ?? []),
  });
}

export function useRequestProfile(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    ...profileJobMutation(),
    onSuccess: () => client.invalidateQueries({ queryKey: listProfilesQueryKey(ofJob(jobId)) }),
  });
}
