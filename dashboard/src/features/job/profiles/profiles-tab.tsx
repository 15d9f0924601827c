import { Anchor, Group, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { fileUrl } from "@/features/job/api/outputs";
import { isUnderWay, type Profile, type Trace, useProfiles } from "@/features/job/api/profiles";
import { isFinished, type Job } from "@/shared/api/types";
import { bytes, count, plural } from "@/shared/format";
import { Empty } from "@/shared/ui/empty";
import { Pending } from "@/shared/ui/problem";
import { Ago } from "@/shared/ui/time";
import { ProfileButton } from "./profile-button";
import classes from "./profiles-tab.module.css";
import { TraceViewer } from "./trace-viewer";

export function ProfilesTab({ job }: { job: Job }) {
  const profiles = useProfiles(job);
  if (!profiles.data) return <Pending query={profiles} what="the profiles" />;
  const { items } = profiles.data;
  const busy = job.state === "running" && items.some(({ state }) => isOpen(state));
  return (
    <Stack gap="sm">
      {isFinished(job) ? null : (
        <Group>
          <ProfileButton job={job} busy={busy} />
        </Group>
      )}
      {items.length === 0 ? (
        <Empty title="No profiles">
          A profile records what the ranks of a running job do in their next steps.
        </Empty>
      ) : null}
      {items.map((profile) => (
        <ProfileCard key={profile.id} job={job} profile={profile} />
      ))}
    </Stack>
  );
}

function isOpen(state: Profile["state"]): boolean {
  return state === "requested" || state === "running";
}

const STATES: Record<Profile["state"], string> = {
  requested: "waits for the ranks",
  running: "records",
  completed: "completed",
  failed: "failed",
};

function ProfileCard({ job, profile }: { job: Job; profile: Profile }) {
  const { id, state, traces, problems } = profile;
  return (
    <section className={`app-card ${classes.card}`} aria-label={`Profile ${id}`}>
      <Text size="sm" fw={600} aria-live="polite">
        Profile {id} · {state === "completed" && isUnderWay(profile) ? "sends" : STATES[state]}
      </Text>
      <Text size="xs" c="dimmed">
        {summary(profile)} · <Ago value={profile.asked_at} />
      </Text>
      <ul className={classes.traces}>
        {traces.map((trace) => (
          <li key={trace.rank}>
            <TraceItem job={job} trace={trace} />
          </li>
        ))}
        {problems.map(({ rank, message }) => (
          <li key={rank}>
            Rank {rank}: {message}
          </li>
        ))}
      </ul>
    </section>
  );
}

function summary({ steps, stacks, memory, ranks, attempt, asked_by, first_step }: Profile): string {
  return [
    `${plural(steps, "step")} of ${ranks.length === 1 ? `rank ${ranks[0]}` : plural(ranks.length, "rank")}`,
    first_step === null ? "" : `from step ${count(first_step)}`,
    stacks ? "Python calls" : "",
    memory ? "memory" : "",
    `attempt ${attempt}`,
    asked_by === null ? "" : `by ${asked_by}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

function TraceItem({ job, trace }: { job: Job; trace: Trace }) {
  const { rank, path, size, first_step, last_step, stall_seconds, note } = trace;
  const [open, setOpen] = useState(false);
  const details = [
    size === null ? "on its way" : bytes(size),
    `steps ${count(first_step)} to ${count(last_step)}`,
    `held up training for ${stall_seconds.toFixed(2)} s`,
    note,
  ].filter(Boolean);
  return (
    <>
      Rank {rank}:{" "}
      {size === null ? null : (
        <>
          <Anchor
            component="button"
            type="button"
            inherit
            aria-label={`Open rank ${rank}`}
            onClick={() => setOpen(true)}
          >
            Open
          </Anchor>
          {" · "}
          <Anchor
            inherit
            href={fileUrl(job.id, path)}
            download={`${job.id}-${path.replaceAll("/", "-")}`}
            aria-label={`Download rank ${rank}`}
          >
            Download
          </Anchor>
          {" · "}
        </>
      )}
      {details.join(" · ")}
      {open ? <TraceViewer job={job} trace={trace} onClose={() => setOpen(false)} /> : null}
    </>
  );
}
