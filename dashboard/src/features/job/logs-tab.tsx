import { Button, Group, SegmentedControl, Select, Stack, Switch, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { ApiError } from "@/shared/api/problem";
import { isFinal, type Job } from "@/shared/api/types";
import { count, plural } from "@/shared/format";
import type { JobLive } from "@/shared/live/job-live";
import { Problem } from "@/shared/ui/problem";
import { type LogFilter, readLogs } from "./api/read-logs";
import { lineId } from "./line-id";
import { LogFeed, type LogState } from "./log-feed";
import { LogFind } from "./log-find";
import { LogView, type Sought } from "./log-view";

const route = getRouteApi("/jobs/$jobId");

/** With more of them, a rank or an attempt is found by typing its number. */
const MANY = 12;
/** Options that a list shows at once. */
const MOST_OPTIONS = 200;

interface Props {
  job: Job;
  live: JobLive;
}

export function LogsTab({ job, live }: Props) {
  const { rank, stream, attempt, find = "", line } = route.useSearch();
  const navigate = route.useNavigate();
  const [following, setFollowing] = useState(line === undefined);
  const [sought, setSought] = useState<Sought | null>(() => (line === undefined ? null : { line }));
  const filter = useMemo(() => ({ rank, stream, attempt }), [rank, stream, attempt]);
  const feed = useFeed(job.id, live, filter, line);
  const state = useSyncExternalStore(feed.subscribe, feed.get);
  // The router would put the lines back to where they stood before the address changed.
  const choose = (next: string | undefined) =>
    void navigate({
      search: (old) => ({ ...old, line: next }),
      replace: true,
      resetScroll: false,
    });
  const goTo = (next: string): void => {
    setFollowing(false);
    setSought({ line: next });
    choose(next);
    if (!feed.get().lines.some((each) => lineId(each) === next)) feed.goTo({ at: next });
  };
  const follow = (on: boolean): void => {
    setFollowing(on);
    if (!on) return;
    setSought(null);
    if (line !== undefined) choose(undefined);
    if (!feed.get().atEnd) feed.goTo("end");
  };
  const isGone = state.error instanceof ApiError && state.error.status === 404;
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <Filters job={job} filter={filter} />
        <LogFind
          jobId={job.id}
          live={live}
          filter={filter}
          find={find}
          chosen={line}
          onFind={(text) =>
            void navigate({
              search: (old) => ({ ...old, find: text || undefined }),
              replace: true,
              resetScroll: false,
            })
          }
          onChoose={goTo}
        />
      </Group>
      {state.error ? (
        <Problem
          error={state.error}
          what={isGone ? "The line is not among these" : "The logs could not be read"}
          onRetry={() => (isGone ? follow(true) : feed.wake())}
        />
      ) : null}
      <LogView
        state={state}
        showRank={rank === undefined && job.world_size > 1}
        following={following}
        find={find}
        chosen={line}
        sought={sought}
        ended={isFinal(job.state)}
        onFollow={follow}
        onChoose={choose}
        onEarlier={feed.earlier}
        onLater={feed.later}
      />
      <Group gap="sm">
        <Switch
          size="xs"
          label="Follow"
          checked={following}
          onChange={(event) => follow(event.currentTarget.checked)}
        />
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => {
            setFollowing(false);
            setSought(null);
            feed.goTo("beginning");
          }}
        >
          Beginning
        </Button>
        <Button
          size="compact-xs"
          variant="default"
          component="a"
          href={rawLogs(job.id, { rank, stream, attempt })}
          target="_blank"
          rel="noreferrer"
        >
          As JSON
        </Button>
        <Text size="xs" c="dimmed" ml="auto" className="numbers">
          {extent(state)}
        </Text>
      </Group>
    </Stack>
  );
}

function Filters({ job, filter }: { job: Job; filter: LogFilter }) {
  const navigate = route.useNavigate();
  const { rank, stream, attempt } = filter;
  const ranks = Array.from({ length: job.world_size }, (_, i) => String(i));
  // The newest is the one that is asked for most.
  const attempts = Array.from({ length: job.attempt }, (_, i) => String(job.attempt - i));
  const choose = (chosen: LogFilter) =>
    void navigate({ search: (old) => ({ ...old, ...chosen }), resetScroll: false });
  return (
    <>
      <Select
        size="xs"
        w={120}
        aria-label="Rank"
        data={[
          { value: "", label: "All ranks" },
          ...ranks.map((r) => ({ value: r, label: `Rank ${r}` })),
        ]}
        value={rank === undefined ? "" : String(rank)}
        allowDeselect={false}
        searchable={job.world_size > MANY}
        limit={MOST_OPTIONS}
        onChange={(value) => choose({ rank: numberOf(value) })}
      />
      <SegmentedControl
        size="xs"
        aria-label="Stream"
        data={[
          { value: "", label: "Both" },
          { value: "stdout", label: "stdout" },
          { value: "stderr", label: "stderr" },
        ]}
        value={stream ?? ""}
        onChange={(value) => choose({ stream: value === "" ? undefined : (value as "stdout") })}
      />
      {job.attempt > 1 ? (
        <Select
          size="xs"
          w={140}
          aria-label="Attempt"
          data={[
            { value: "", label: "All attempts" },
            ...attempts.map((a) => ({ value: a, label: `Attempt ${a}` })),
          ]}
          value={attempt === undefined ? "" : String(attempt)}
          allowDeselect={false}
          searchable={job.attempt > MANY}
          limit={MOST_OPTIONS}
          onChange={(value) => choose({ attempt: numberOf(value) })}
        />
      ) : null}
    </>
  );
}

function useFeed(
  jobId: string,
  live: JobLive,
  filter: LogFilter,
  line: string | undefined,
): LogFeed {
  // Of the address only the line that it had when it was opened, or when a filter was set.
  const opened = useRef(line);
  opened.current = line;
  const feed = useMemo(() => {
    const begin = opened.current === undefined ? "end" : { at: opened.current };
    return new LogFeed((from) => readLogs(jobId, filter, from), begin);
  }, [jobId, filter]);
  useEffect(() => {
    feed.start();
    const unsubscribe = live.logNews.subscribe(() => feed.wake());
    return () => {
      unsubscribe();
      feed.stop();
    };
  }, [feed, live]);
  return feed;
}

function extent(state: LogState): string {
  const told = plural(state.lines.length, "line");
  if (state.lines.length === 0 || (state.atStart && state.atEnd)) return told;
  if (state.atStart) return `the first ${told}`;
  return state.atEnd ? `the last ${told}` : `${count(state.lines.length)} lines of many`;
}

function numberOf(value: string | null): number | undefined {
  return value === null || value === "" ? undefined : Number(value);
}

function rawLogs(jobId: string, filter: Record<string, string | number | undefined>): string {
  const query = new URLSearchParams({ limit: "1000" });
  for (const [name, value] of Object.entries(filter)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return `/api/v1/training/jobs/${encodeURIComponent(jobId)}/logs?${query}`;
}
