import { queryOptions, useQuery } from "@tanstack/react-query";
import { getJob as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";
import { isActive, type Job } from "./types";

const HOSTS_MS = 10_000;

export function getJob(id: string, signal?: AbortSignal): Promise<Job> {
  return unwrap(request({ path: { job_id: id }, ...(signal ? { signal } : {}) }));
}

export function jobOptions(id: string) {
  return queryOptions({
    queryKey: keys.job(id),
    queryFn: ({ signal }) => getJob(id, signal),
  });
}

export function useJob(id: string) {
  return useQuery({
    ...jobOptions(id),
    // Its stream tells what happens to the job, and nothing of its hosts.
    refetchInterval: ({ state: { data } }) => (data && isActive(data.state) ? HOSTS_MS : false),
  });
}
