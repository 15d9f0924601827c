import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type QuotaPage, readQuotas } from "@/client";
import { readQueueInfiniteOptions, readQuotasQueryKey } from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR, everyPage } from "@/shared/api/pages";
import type { Quota } from "@/shared/api/types";

const PAGE = 100;
const POLL_MS = 3000;

/** The waiting jobs in their order, page by page. */
export function useQueue() {
  return useInfiniteQuery({
    ...readQueueInfiniteOptions({ query: { limit: PAGE, history: true } }),
    ...BY_CURSOR,
    refetchInterval: POLL_MS,
  });
}

export interface Quotas {
  items: Quota[];
  /** Limits of the projects and users that are not listed. */
  others: QuotaPage["others"];
}

/** The quotas of every project and user. */
export function useQuotas() {
  return useQuery({
    queryKey: readQuotasQueryKey(),
    queryFn: async ({ signal }): Promise<Quotas> => {
      let others: Quotas["others"] = { project: null, user: null };
      const items = await everyPage(async (cursor) => {
        const page = await readQuotas({ query: { cursor }, signal });
        others = page.others;
        return page;
      });
      return { items, others };
    },
    refetchInterval: POLL_MS,
  });
}
