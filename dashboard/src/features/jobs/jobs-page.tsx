import { Code, Group, Stack } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useMemo, useRef, useState } from "react";
import type { JobPage } from "@/client";
import { useRights } from "@/shared/api/rights";
import { CopyAs } from "@/shared/copy/copy-as";
import { listing } from "@/shared/copy/snippets";
import { useLastDefined } from "@/shared/last-defined";
import { scopeOf } from "@/shared/owners/scope";
import { ScopeSwitch } from "@/shared/owners/scope-switch";
import { usePageCommands } from "@/shared/page/commands";
import { PageHeading } from "@/shared/page/heading";
import { LoadMore } from "@/shared/page/load-more";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
import { SearchField } from "@/shared/ui/search-field";
import { useJobGroups } from "./api/job-groups";
import { type PageRange, useJobList } from "./api/job-list";
import { BulkActions } from "./bulk/bulk-actions";
import { FILTERS, type Filter, queryOf } from "./filters";
import { GroupSelect, JobGroups } from "./groups/job-groups";
import classes from "./jobs-page.module.css";
import { QueryInput, queryProblem } from "./query-input";
import { StateFilter } from "./state-filter";
import { ColumnChooser } from "./table/column-chooser";
import { shownColumns, toSearch } from "./table/columns";
import { JobsTable } from "./table/jobs-table";
import { NEWEST_FIRST, type Sort } from "./table/sort";
import { ViewsMenu } from "./views/views-menu";

const route = getRouteApi("/jobs");

/** More jobs are read when so few rows follow those on the screen. */
const ROWS_AHEAD = 40;
const NO_PAGES: readonly JobPage[] = [];

export default function JobsPage() {
  useTitle("Jobs");
  const asked = route.useSearch();
  const { show = "all", search = "", query = "", sort, selected: ids, ...more } = asked;
  const { columns: given, pinned, group } = more;
  const scope = scopeOf(asked);
  const columns = useMemo(() => shownColumns({ columns: given, pinned }), [given, pinned]);
  const navigate = route.useNavigate();
  const [onScreen, setOnScreen] = useState<PageRange>([0, 0]);
  const order = sort ?? NEWEST_FIRST;
  const { states } = FILTERS[show];
  const filter = { states, search, query: queryOf(show, query, scope) };
  const jobs = useJobList(filter, order, onScreen, group === undefined);
  const groups = useJobGroups(group, filter);
  const error = group === undefined ? jobs.error : groups.error;
  const problem = query === "" ? undefined : queryProblem(error);
  // A query may be invalid while it is typed: the last valid one's jobs stay.
  const pages = useLastDefined(jobs.data)?.pages ?? NO_PAGES;
  const lastCounts = useLastDefined(groups.data);
  const counts = groups.isError ? lastCounts : groups.data;
  const rows = useMemo(() => pages.flatMap(({ items }) => items), [pages]);
  const latest = useRef({ pages, rows: 0, loadMore: () => {} });
  latest.current = {
    pages,
    rows: rows.length,
    loadMore: () => {
      if (jobs.hasNextPage && !jobs.isFetchingNextPage && !jobs.isPlaceholderData) {
        void jobs.fetchNextPage();
      }
    },
  };
  const onRows = useCallback((first: number, last: number) => {
    const { pages, rows, loadMore } = latest.current;
    if (last >= rows - ROWS_AHEAD) loadMore();
    const range: PageRange = [pageOf(pages, first), pageOf(pages, last)];
    setOnScreen((before) => (before.join() === range.join() ? before : range));
  }, []);
  const selected = useMemo(() => ids?.split(",") ?? [], [ids]);
  const select = useCallback(
    (next: string[]) =>
      void navigate({
        search: (old) => ({ ...old, selected: next.join() || undefined }),
        replace: true,
        resetScroll: false,
      }),
    [navigate],
  );
  const onSort = useCallback(
    (next: Sort) =>
      void navigate({
        search: (old) => ({ ...old, sort: next === NEWEST_FIRST ? undefined : next }),
        resetScroll: false,
      }),
    [navigate],
  );
  const showState = (next: Filter) =>
    void navigate({ search: (old) => ({ ...old, show: next === "all" ? undefined : next }) });
  usePageCommands(
    (Object.keys(FILTERS) as Filter[]).map((filter) => ({
      label: `Show ${FILTERS[filter].label.toLowerCase()} jobs`,
      run: () => showState(filter),
    })),
  );
  return (
    <Stack gap="md">
      <PageHeading title="Jobs">
        <Group gap="xs">
          <CopyAs snippets={() => listing(window.location.origin, { ...filter, sort })} />
          <ViewsMenu
            search={{ show, search, query, sort, columns: given, pinned, group, ...scope }}
          />
          <GroupSelect
            value={group}
            onChange={(next) =>
              void navigate({
                search: (old) => ({ ...old, group: next, selected: undefined }),
                resetScroll: false,
              })
            }
          />
          <ColumnChooser
            columns={columns}
            jobs={rows}
            onChange={(next) =>
              void navigate({
                search: (old) => ({ ...old, ...toSearch(next) }),
                replace: true,
                resetScroll: false,
              })
            }
          />
          <NewJob />
        </Group>
      </PageHeading>
      <Group justify="space-between" align="flex-start" gap="sm">
        <Group gap="sm">
          <ScopeSwitch
            scope={scope}
            onChange={(next) =>
              void navigate({ search: (old) => ({ ...old, ...next, selected: undefined }) })
            }
          />
          <StateFilter
            show={show}
            search={search}
            query={queryOf("all", query, scope)}
            onChange={showState}
          />
        </Group>
        <Group gap="xs" align="flex-start">
          <QueryInput
            value={query}
            problem={problem}
            onSearch={(text) =>
              void navigate({
                search: (old) => ({ ...old, query: text || undefined }),
                replace: true,
              })
            }
          />
          <SearchField
            w={220}
            placeholder="Name or id"
            aria-label="Search by name or id"
            value={search}
            onSearch={(text) =>
              void navigate({
                search: (old) => ({ ...old, search: text || undefined }),
                replace: true,
              })
            }
          />
        </Group>
      </Group>
      {group !== undefined ? (
        <>
          {problem ? null : <Pending query={groups} what="the groups" height={240} />}
          <div className={classes.list} data-stale={groups.isError || undefined}>
            {counts ? (
              <JobGroups
                by={group}
                groups={counts}
                searchOf={(term) => ({
                  ...asked,
                  group: undefined,
                  query: `${query} ${term}`.trim(),
                })}
              />
            ) : null}
          </div>
        </>
      ) : (
        <>
          {selected.length > 0 ? (
            <BulkActions selected={selected} jobs={rows} onSelect={select} />
          ) : null}
          {problem ? null : <Pending query={jobs} what="the jobs" height={240} />}
          {rows.length > 0 ? (
            <div className={classes.list} data-stale={jobs.isLoadingError || undefined}>
              <JobsTable
                jobs={rows}
                columns={columns}
                selected={selected}
                onSelect={select}
                sort={order}
                onSort={onSort}
                onScreen={onRows}
              />
            </div>
          ) : null}
          {jobs.data && rows.length === 0 && !jobs.isPlaceholderData ? (
            show === "all" && search.trim() === "" && queryOf("all", query, scope) === "" ? (
              <NoJobs />
            ) : (
              <Empty title="No job matches">
                {jobs.data.pages[0]?.hint ?? "Change the state filter, the query or the search."}
              </Empty>
            )
          ) : null}
          {jobs.isPlaceholderData ? null : <LoadMore list={jobs} />}
        </>
      )}
    </Stack>
  );
}

/** The page that has a row. */
function pageOf(pages: readonly JobPage[], row: number): number {
  let before = 0;
  const page = pages.findIndex(({ items }) => {
    before += items.length;
    return row < before;
  });
  return page < 0 ? Math.max(0, pages.length - 1) : page;
}

function NewJob() {
  return (
    <Refusable refused={useRights().submit} label="New job" icon={<PlusIcon />}>
      <ButtonLink to="/new" size="xs" leftSection={<PlusIcon />}>
        New job
      </ButtonLink>
    </Refusable>
  );
}

function NoJobs() {
  const { noProject } = useRights();
  if (noProject !== null) return <Empty title="No jobs">{noProject}</Empty>;
  return (
    <Empty title="No jobs yet">
      <Stack align="center" gap="sm">
        <div>
          Submit one from the command line with <Code>trainhall submit examples/digits.yaml</Code>,
          or write a spec here.
        </div>
        <NewJob />
      </Stack>
    </Empty>
  );
}
