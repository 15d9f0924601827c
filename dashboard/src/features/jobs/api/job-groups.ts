import { useQuery } from "@tanstack/react-query";
import { listJobGroupsOptions } from "@/client/@tanstack/react-query.gen";
import type { GroupBy } from "../groups/groups";
import { type Filter, parametersOf } from "./job-list";

/** Counting reads all jobs that match: 0.2 s and more for 50,000. */
const POLL_MS = 30_000;

/** How many of the jobs that match the largest groups have; read only while they are grouped. */
export function useJobGroups(by: GroupBy | undefined, filter: Filter) {
  return useQuery({
    ...listJobGroupsOptions({ query: { by: by ?? "state", limit: 1000, ...parametersOf(filter) } }),
    enabled: by !== undefined,
    refetchInterval: POLL_MS,
  });
}
