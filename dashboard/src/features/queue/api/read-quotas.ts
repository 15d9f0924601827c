import { queryOptions, useQuery } from "@tanstack/react-query";
import { readQuotas as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { Quota, QuotaPage } from "@/shared/api/types";

export interface Quotas {
  items: Quota[];
  others: QuotaPage["others"];
}

/** Of every project and user, page by page. */
export async function readQuotas(signal?: AbortSignal): Promise<Quotas> {
  const items: Quota[] = [];
  let cursor: string | null = null;
  for (;;) {
    const query = cursor === null ? {} : { cursor };
    const page: QuotaPage = await unwrap(request({ query, ...(signal ? { signal } : {}) }));
    items.push(...page.items);
    if (!page.next_cursor) return { items, others: page.others };
    cursor = page.next_cursor;
  }
}

export function quotasOptions() {
  return queryOptions({
    queryKey: keys.quotas,
    queryFn: ({ signal }) => readQuotas(signal),
    refetchInterval: 3000,
  });
}

export function useQuotas() {
  return useQuery(quotasOptions());
}
