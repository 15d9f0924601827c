import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { CurveStore } from "@/shared/curves/data/store";
import { JobLive } from "./job-live";

/** Follows a job while its page is open; null until the first render is done. */
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

const REFRESH_MS = 250;

/** Renders again for new points, at most a few times a second. */
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
