import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type QueuePage, type QuotaPage, readQueue, readQuotas } from "@/client";
import { readQueueInfiniteQueryKey, readQuotasQueryKey } from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR, everyPage } from "@/shared/api/pages";
import type { Quota } from "@/shared/api/types";
import { ownerParameters, type Scope } from "@/shared/owners/scope";
import { Positions } from "./positions";

const PAGE = 100;
const POLL_MS = 3000;

/** The waiting jobs of a scope in their order, page by page, each with its positions over time. */
export function useQueue(scope: Scope) {
  const [positions] = useState(() => new Positions());
  const of = ownerParameters(scope);
  return useInfiniteQuery({
    queryKey: readQueueInfiniteQueryKey({ query: { limit: PAGE, history: true, ...of } }),
    queryFn: ({ pageParam, signal }) => readPage(positions, of, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: BY_CURSOR.getNextPageParam,
    refetchInterval: POLL_MS,
  });
}

/** Reads a page; of the positions only what has changed, unless one of its jobs is new here. */
async function readPage(
  positions: Positions,
  of: ReturnType<typeof ownerParameters>,
  cursor: string | undefined,
  signal: AbortSignal,
): Promise<QueuePage> {
  if (cursor === undefined) positions.begin();
  const read = (history_since?: string) =>
    readQueue({ query: { ...of, limit: PAGE, cursor, history: true, history_since }, signal });
  const since = positions.since();
  const page = await read(since);
  const isWhole = since === undefined || page.items.some(({ job_id }) => !positions.has(job_id));
  const found = isWhole && since !== undefined ? await read() : page;
  return { ...found, items: positions.add(found.items, isWhole) };
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
