import { readMetrics as request } from "@/client";
import { unwrap } from "./client";
import type { Series } from "./types";

/** A job's series, thinned to at most so many points each. */
export async function readMetrics(
  jobId: string,
  options: { names?: readonly string[]; maxPoints: number; signal?: AbortSignal },
): Promise<Series[]> {
  const reply = await unwrap(
    request({
      path: { job_id: jobId },
      query: {
        max_points: options.maxPoints,
        ...(options.names ? { names: [...options.names] } : {}),
      },
      ...(options.signal ? { signal: options.signal } : {}),
    }),
  );
  return reply.series;
}
