interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

/** Items of all pages of a list, for lists that are never long. */
export async function everyPage<T>(
  read: (cursor: string | undefined) => Promise<Page<T>>,
): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    items.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return items;
}

/** Items of the pages that were read; one that moved meanwhile may be on two of them. */
export function itemsOf<T>(
  data: { pages: { items: T[] }[] } | undefined,
  keyOf: (item: T) => string,
): T[] {
  const items = (data?.pages ?? []).flatMap((page) => page.items);
  return [...new Map(items.map((item) => [keyOf(item), item])).values()];
}

/** Options of an infinite query over a list whose pages end with a cursor. */
export const BY_CURSOR = {
  initialPageParam: {},
  getNextPageParam: (page: { next_cursor?: string | null }) => page.next_cursor ?? undefined,
};
