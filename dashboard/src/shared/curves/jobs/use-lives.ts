import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import type { Job } from "@/shared/api/types";
import { JobLive, originOf } from "@/shared/live/job-live";
import type { Axis, Range } from "../data/axis";
import { labelOf } from "./labels";
import type { Compared } from "./panels";

const TIMING = ["step_seconds"];

export type Lives = ReadonlyMap<string, JobLive>;

interface Shared {
  live: JobLive;
  users: number;
}

/** Charts of one page follow a job once, however many of them show it. */
const followed = new WeakMap<QueryClient, Map<string, Shared>>();

function follow(queries: QueryClient, id: string): JobLive {
  const all = followed.get(queries) ?? new Map<string, Shared>();
  followed.set(queries, all);
  const shared = all.get(id);
  if (shared !== undefined) {
    shared.users += 1;
    return shared.live;
  }
  const live = new JobLive(id, queries, TIMING);
  all.set(id, { live, users: 1 });
  live.start();
  return live;
}

function leave(queries: QueryClient, id: string): void {
  const all = followed.get(queries);
  const shared = all?.get(id);
  if (all === undefined || shared === undefined) return;
  shared.users -= 1;
  if (shared.users > 0) return;
  shared.live.stop();
  all.delete(id);
}

/** Follows every job; renders again when one has loaded, or has a new series. */
export function useLives(ids: readonly string[], range: Range | null, axis: Axis): Lives {
  const queries = useQueryClient();
  const own = useRef(new Map<string, JobLive>());
  const [lives, setLives] = useState<Lives>(new Map());
  const [, render] = useState("");
  const key = ids.join();
  useEffect(() => {
    const wanted = key === "" ? [] : key.split(",");
    for (const id of wanted) {
      if (!own.current.has(id)) own.current.set(id, follow(queries, id));
    }
    for (const id of own.current.keys()) {
      if (wanted.includes(id)) continue;
      leave(queries, id);
      own.current.delete(id);
    }
    setLives(new Map(own.current));
  }, [key, queries]);
  useEffect(
    () => () => {
      for (const id of own.current.keys()) leave(queries, id);
      own.current.clear();
    },
    [queries],
  );
  useEffect(() => {
    const all = [...lives.values()];
    const update = () =>
      render(
        all
          .map(({ curves, window, status }) => [
            ...curves.names(),
            window.value?.ready,
            status.value.phase === "connecting",
          ])
          .join(";"),
      );
    const unsubscribe = all.flatMap(({ curves, window, status }) =>
      [curves, window, status].map((each) => each.subscribe(update)),
    );
    return () => {
      for (const each of unsubscribe) each();
    };
  }, [lives]);
  useEffect(() => {
    for (const live of lives.values()) live.zoom(range, axis);
  }, [lives, range, axis]);
  return lives;
}

/** Whether every job has loaded, or cannot be. */
export function isSettled(lives: Lives): boolean {
  const all = [...lives.values()];
  return all.length > 0 && all.every(({ status }) => status.value.phase !== "connecting");
}

interface How {
  /** The place of a job's colour. */
  slotOf: (job: Job, i: number) => number;
  /** Of each job; the same for those that differ in their seeds alone. */
  configs: readonly string[];
  isZoomed: boolean;
}

/** The jobs that are followed, as panels draw them. */
export function comparedOf(
  jobs: readonly Job[],
  lives: Lives,
  { slotOf, configs, isZoomed }: How,
): Compared[] {
  return jobs.flatMap((job, i): Compared[] => {
    const live = lives.get(job.id);
    if (live === undefined) return [];
    const shown = live.window.value;
    return [
      {
        label: labelOf(job, jobs),
        slot: slotOf(job, i),
        config: configs[i] ?? job.id,
        mainMetric: job.main_metric?.name,
        all: live.curves,
        shown: isZoomed && shown?.ready ? shown.store : live.curves,
        origin: originOf(job),
      },
    ];
  });
}
