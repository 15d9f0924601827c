import { Button, Group, SegmentedControl, Select, Stack, Switch, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { Job } from "@/shared/api/types";
import { count } from "@/shared/format";
import type { JobLive } from "@/shared/live/job-live";
import { Problem } from "@/shared/ui/problem";
import { readLogs } from "./api/read-logs";
import { LogFeed } from "./log-feed";
import { LogView } from "./log-view";

const route = getRouteApi("/jobs/$jobId");

interface Props {
  job: Job;
  live: JobLive;
}

export function LogsTab({ job, live }: Props) {
  const { rank, stream, attempt } = route.useSearch();
  const navigate = route.useNavigate();
  const [following, setFollowing] = useState(true);
  const feed = useFeed(job.id, live, rank, stream, attempt);
  const state = useSyncExternalStore(feed.subscribe, feed.get);
  const ranks = Array.from({ length: Math.min(job.world_size, 4096) }, (_, i) => String(i));
  const attempts = Array.from({ length: job.attempt }, (_, i) => String(i + 1));
  return (
    <Stack gap="sm">
      <Group gap="sm">
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
          searchable={job.world_size > 12}
          onChange={(value) =>
            void navigate({ search: (old) => ({ ...old, rank: numberOf(value) }) })
          }
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
          onChange={(value) =>
            void navigate({
              search: (old) => ({ ...old, stream: value === "" ? undefined : (value as "stdout") }),
            })
          }
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
            onChange={(value) =>
              void navigate({ search: (old) => ({ ...old, attempt: numberOf(value) }) })
            }
          />
        ) : null}
        <Switch
          size="xs"
          label="Follow"
          checked={following}
          onChange={(event) => setFollowing(event.currentTarget.checked)}
        />
        <Text size="xs" c="dimmed" ml="auto" className="numbers">
          {count(state.lines.length)} lines{state.earlier ? ", earlier ones not shown" : ""}
        </Text>
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
      </Group>
      {state.error ? (
        <Problem
          error={state.error}
          what="The logs could not be read"
          onRetry={() => feed.wake()}
        />
      ) : null}
      <LogView
        lines={state.lines}
        loading={state.loading}
        showRank={rank === undefined && job.world_size > 1}
        following={following}
        onFollow={setFollowing}
      />
    </Stack>
  );
}

function useFeed(
  jobId: string,
  live: JobLive,
  rank: number | undefined,
  stream: "stdout" | "stderr" | undefined,
  attempt: number | undefined,
): LogFeed {
  const feed = useMemo(
    () => new LogFeed((from) => readLogs(jobId, { rank, stream, attempt }, from)),
    [jobId, rank, stream, attempt],
  );
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
