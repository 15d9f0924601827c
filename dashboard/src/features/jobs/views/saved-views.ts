import type { SavedListView } from "@/client";
import type { Scope } from "@/shared/owners/scope";
import { FILTERS, type Filter, isFilter, queryOf } from "../filters";
import type { GroupBy } from "../groups/groups";
import { type ColumnsSearch, columnsOf } from "../table/columns";
import { NEWEST_FIRST, type Sort } from "../table/sort";

/** The part of the URL of the jobs page that a view keeps. */
export interface ViewSearch extends ColumnsSearch, Scope {
  show?: Filter | undefined;
  search?: string | undefined;
  query?: string | undefined;
  sort?: Sort | undefined;
  group?: GroupBy | undefined;
}

/** The URL's part that shows a view; what the view has by default is undefined. */
export function searchOf(view: SavedListView): ViewSearch {
  const { columns, pinned } = columnsOf(view);
  return {
    show: filterOf(view.state),
    search: view.search || undefined,
    query: view.query || undefined,
    sort: view.sort && view.sort !== NEWEST_FIRST ? view.sort : undefined,
    columns,
    pinned,
    group: view.group ?? undefined,
  };
}

/** The view to save under a name. */
export function viewOf(name: string, { show = "all", ...search }: ViewSearch) {
  return {
    name,
    state: [...(FILTERS[show].states ?? [])],
    search: search.search?.trim() ?? "",
    query: queryOf(show, search.query ?? "", search),
    sort: search.sort ?? "",
    columns: search.columns ?? [],
    pinned: search.pinned ?? 0,
    group: search.group ?? null,
  };
}

/** The filter with these states; a view of other states, saved over REST, shows all. */
function filterOf(states: readonly string[]): Filter | undefined {
  const wanted = [...states].sort().join();
  return Object.keys(FILTERS)
    .filter(isFilter)
    .find(
      (filter) => wanted !== "" && [...(FILTERS[filter].states ?? [])].sort().join() === wanted,
    );
}
