import { listEvents as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import type { JobEvent } from "@/shared/api/types";

const PAGE = 500;

/** All events behind a sequence, in order. */
export async function listEvents(jobId: string, after: number): Promise<JobEvent[]> {
  const events: JobEvent[] = [];
  let behind = after;
  for (;;) {
    const page = await unwrap(
      request({ path: { job_id: jobId }, query: { after: behind, limit: PAGE } }),
    );
    events.push(...page.items);
    const last = page.items.at(-1);
    if (last === undefined || !page.next_cursor) return events;
    behind = last.seq;
  }
}
