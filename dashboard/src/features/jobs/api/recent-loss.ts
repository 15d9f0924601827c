import { queryOptions, useQuery } from "@tanstack/react-query";
import { keys } from "@/shared/api/keys";
import { readMetrics } from "@/shared/api/read-metrics";
import { isActive } from "@/shared/api/types";
import { toNumber } from "@/shared/format";

const POINTS = 48;

export async function recentLoss(jobId: string, signal?: AbortSignal): Promise<(number | null)[]> {
  const found = await readMetrics(jobId, {
    names: ["loss"],
    maxPoints: POINTS,
    ...(signal ? { signal } : {}),
  });
  const loss = found.find((series) => series.rank === null);
  return (loss?.points ?? []).map((point) => toNumber(point.value));
}

export function recentLossOptions(jobId: string, state: string, visible: boolean) {
  return queryOptions({
    queryKey: [...keys.loss(jobId), isActive(state)],
    queryFn: ({ signal }) => recentLoss(jobId, signal),
    enabled: visible,
    staleTime: isActive(state) ? 2000 : Number.POSITIVE_INFINITY,
    refetchInterval: isActive(state) ? 3000 : false,
    // The old curve stays while a job changes its state.
    placeholderData: (before) => before,
  });
}

/** The shape of a job's loss; asked only while its row is on screen. */
export function useRecentLoss(jobId: string, state: string, visible: boolean) {
  return useQuery(recentLossOptions(jobId, state, visible));
}
