import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { listJobGroupsOptions } from "@/client/@tanstack/react-query.gen";
import type { GroupBy } from "../groups/groups";
import { type Filter, parametersOf } from "./job-list";

const POLL_MS = 4000;

/** How many of the jobs that match the largest groups have; read only while they are grouped. */
export function useJobGroups(by: GroupBy | undefined, filter: Filter) {
  return useQuery({
    ...listJobGroupsOptions({ query: { by: by ?? "state", limit: 1000, ...parametersOf(filter) } }),
    enabled: by !== undefined,
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
}
