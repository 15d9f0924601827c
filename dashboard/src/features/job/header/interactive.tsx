import { Text } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { clock, duration } from "@/shared/format";
import { useSampleTime } from "@/shared/now";

/** The use of an interactive job that runs, and how to enter it; nothing of another job. */
export function InteractiveUse({ job }: { job: Job }) {
  const now = useSampleTime();
  const use = job.interactive;
  if (!use || job.state !== "running") return null;
  const text = use.idle_since === null ? "in use" : idleText(use.idle_since, use.ends_at, now);
  return (
    <Text size="sm">
      Interactive: {text}. <code>{`trainhall exec ${job.id}`}</code> opens a shell.
    </Text>
  );
}

function idleText(since: string, ends: string | null, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(since)) / 1000);
  return `idle for ${duration(seconds)}${ends === null ? "" : `, ends at ${clock(ends)}`}`;
}
