import { Button, Group, SegmentedControl, Select, Stack, Switch, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { type LogFilter, readLogs } from "@/features/job/api/logs";
import { StacksButton } from "@/features/job/stacks/stacks-button";
import { ApiError } from "@/shared/api/problem";
import { isFinished, type Job } from "@/shared/api/types";
import { plural, timeZone } from "@/shared/format";
import type { JobLive } from "@/shared/live/job-live";
import { useSignal } from "@/shared/live/signal";
import { DownIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { lineId } from "./line-id";
import { LogFeed, type LogState } from "./log-feed";
import { LogFind } from "./log-find";
import { LogView, type ScrollTarget } from "./log-view";

const route = getRouteApi("/jobs/$jobId");

/** Ranks or attempts above which their list can be searched. */
const SEARCHABLE_FROM = 12;
/** Options that a list shows at once. */
const MAX_OPTIONS = 200;

interface Props {
  job: Job;
  live: JobLive;
}

export function LogsTab({ job, live }: Props) {
  const { rank, stream, attempt, find = "", line, times = false, wrap = false } = route.useSearch();
  const navigate = route.useNavigate();
  const [following, setFollowing] = useState(line === undefined);
  const [target, setScrollTarget] = useState<ScrollTarget | null>(() =>
    line === undefined ? null : { line },
  );
  const filter = useMemo(() => ({ rank, stream, attempt }), [rank, stream, attempt]);
  const feed = useFeed(job.id, live, filter, line);
  const state = useSignal(feed.state);
  // The router would restore the scroll position from before the URL changed.
  const show = (change: {
    line?: string | undefined;
    find?: string | undefined;
    times?: boolean | undefined;
    wrap?: boolean | undefined;
  }) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true, resetScroll: false });
  const choose = (next: string | undefined) => show({ line: next });
  const goTo = (next: string): void => {
    setFollowing(false);
    setScrollTarget({ line: next });
    choose(next);
    if (!feed.state.value.lines.some((each) => lineId(each) === next)) feed.goTo({ at: next });
  };
  const follow = (on: boolean): void => {
    setFollowing(on);
    if (!on) return;
    setScrollTarget(null);
    if (line !== undefined) choose(undefined);
    if (!feed.state.value.atEnd) feed.goTo("end");
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
          onFind={(text) => show({ find: text || undefined })}
          onChoose={goTo}
        />
        <StacksButton job={job} />
      </Group>
      {state.error ? (
        <Problem
          error={state.error}
          what={isGone ? "No such line with these filters" : "Could not load the logs"}
          onRetry={() => (isGone ? follow(true) : feed.wake())}
        />
      ) : null}
      <LogView
        state={state}
        showTime={times}
        wrap={wrap}
        showRank={rank === undefined && job.world_size > 1}
        following={following}
        find={find}
        chosen={line}
        target={target}
        ended={isFinished(job)}
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
        <Switch
          size="xs"
          label={`Times (${timeZone()})`}
          checked={times}
          onChange={({ currentTarget: { checked } }) => show({ times: checked || undefined })}
        />
        <Switch
          size="xs"
          label="Wrap"
          checked={wrap}
          onChange={({ currentTarget: { checked } }) => show({ wrap: checked || undefined })}
        />
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => {
            setFollowing(false);
            setScrollTarget(null);
            feed.goTo("beginning");
          }}
        >
          Jump to start
        </Button>
        <Button
          size="compact-xs"
          variant="default"
          component="a"
          href={downloadOf(job.id, filter)}
          leftSection={<DownIcon />}
        >
          Download
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
  // The newest first.
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
        searchable={job.world_size > SEARCHABLE_FROM}
        limit={MAX_OPTIONS}
        onChange={(value) => choose({ rank: numberOf(value) })}
      />
      <SegmentedControl
        size="xs"
        aria-label="Stream"
        data={[
          { value: "", label: "All output" },
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
          searchable={job.attempt > SEARCHABLE_FROM}
          limit={MAX_OPTIONS}
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
  // Only the line that the URL had when the tab was opened or a filter was set.
  const opened = useRef(line);
  opened.current = line;
  const feed = useMemo(() => {
    const begin = opened.current === undefined ? "end" : { at: opened.current };
    return new LogFeed((from) => readLogs(jobId, filter, from), begin);
  }, [jobId, filter]);
  useEffect(() => {
    feed.start();
    const unsubscribe = live.logVersion.subscribe(() => feed.wake());
    return () => {
      unsubscribe();
      feed.stop();
    };
  }, [feed, live]);
  return feed;
}

function extent(state: LogState): string {
  const lines = plural(state.lines.length, "line");
  if (state.lines.length === 0 || (state.atStart && state.atEnd)) return lines;
  if (state.atStart) return `first ${lines}`;
  return state.atEnd ? `last ${lines}` : `${lines} loaded`;
}

function numberOf(value: string | null): number | undefined {
  return value === null || value === "" ? undefined : Number(value);
}

function downloadOf(jobId: string, filter: LogFilter): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filter)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return `/api/v1/training/jobs/${encodeURIComponent(jobId)}/logs/download?${query}`;
}
