import { readMetrics as request } from "@/client";
import { unwrap } from "./client";
import type { Series } from "./types";

interface Options {
  names?: readonly string[];
  maxPoints: number;
  fromStep?: number;
  toStep?: number;
  signal?: AbortSignal;
}

/** A job's series, or those of some steps, thinned to at most so many points each. */
export async function readMetrics(jobId: string, options: Options): Promise<Series[]> {
  const reply = await unwrap(
    request({
      path: { job_id: jobId },
      query: {
        max_points: options.maxPoints,
        ...(options.names ? { names: [...options.names] } : {}),
        ...(options.fromStep === undefined ? {} : { from_step: options.fromStep }),
        ...(options.toStep === undefined ? {} : { to_step: options.toStep }),
      },
      ...(options.signal ? { signal: options.signal } : {}),
    }),
  );
  return reply.series;
}
