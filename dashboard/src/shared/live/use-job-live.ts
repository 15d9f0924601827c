import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState } from "react";
import type { CurveStore } from "@/shared/curves/store";
import { JobLive } from "./job-live";

export const LiveContext = createContext<JobLive | null>(null);

/** Follow a job while the page shows it; null until the first render is done. */
export function useJobLive(jobId: string): JobLive | null {
  const queries = useQueryClient();
  const [live, setLive] = useState<JobLive | null>(null);
  useEffect(() => {
    const job = new JobLive(jobId, queries);
    setLive(job);
    job.start();
    return () => {
      job.stop();
      setLive(null);
    };
  }, [jobId, queries]);
  return live;
}

export function useLive(): JobLive {
  const live = useContext(LiveContext);
  if (live === null) throw new Error("useLive is used outside of a job's page");
  return live;
}

const REFRESH_MS = 250;

/** Render again when points came, but no more than a few times a second. */
export function useCurveVersion(curves: CurveStore): number {
  const [version, setVersion] = useState(curves.version);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const unsubscribe = curves.subscribe(() => {
      timer ??= setTimeout(() => {
        timer = undefined;
        setVersion(curves.version);
      }, REFRESH_MS);
    });
    setVersion(curves.version);
    return () => {
      clearTimeout(timer);
      unsubscribe();
    };
  }, [curves]);
  return version;
}
