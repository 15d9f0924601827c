import { Breadcrumbs, Group, Progress, Text, Title } from "@mantine/core";
import { useQueue } from "@/shared/api/read-queue";
import { isActive, isFinal, type Job } from "@/shared/api/types";
import { count, duration, metric, plural, si } from "@/shared/format";
import { JobCommands } from "@/shared/job-commands";
import type { JobLive } from "@/shared/live/job-live";
import { useSignal } from "@/shared/live/signal";
import { useCurveVersion } from "@/shared/live/use-job-live";
import { useNow } from "@/shared/now";
import { StreamBadge } from "@/shared/stream-badge";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago, Moment } from "@/shared/ui/time";
import classes from "./header.module.css";
import { secondsLeft } from "./progress";

interface Props {
  job: Job;
  live: JobLive;
}

export function Header({ job, live }: Props) {
  const status = useSignal(live.status);
  useCurveVersion(live.curves);
  return (
    <header>
      <Breadcrumbs separator="/" mb={6}>
        <AnchorLink to="/jobs" size="xs">
          Jobs
        </AnchorLink>
        <Text size="xs" c="dimmed" ff="monospace">
          {job.id}
        </Text>
      </Breadcrumbs>
      <Group justify="space-between" align="flex-start" gap="md">
        <Group gap="sm" className={classes.titles ?? ""}>
          <Title order={1} size="h3" className={classes.name ?? ""}>
            {job.name}
          </Title>
          <span data-testid="job-state">
            <StateBadge state={job.state} size="md" />
          </span>
          <StreamBadge status={status} onRetry={live.retryNow} />
        </Group>
        <JobCommands job={job} />
      </Group>
      <Reason job={job} />
      <Facts job={job} />
      <JobProgress job={job} live={live} />
      <Numbers job={job} live={live} />
    </header>
  );
}

/** Why the job is in its state; of one that waits, for what, and how many are ahead of it. */
function Reason({ job }: { job: Job }) {
  const waits = job.state === "queued" || job.state === "recovering";
  const queue = useQueue(waits);
  const entry = waits ? queue.data?.find((each) => each.job_id === job.id) : undefined;
  if (!entry) {
    return (
      <Text size="sm" mt={4} className={classes.reason ?? ""}>
        {job.reason || "\u00a0"}
      </Text>
    );
  }
  const device = entry.needs.device === "cpu" ? "CPU slot" : "GPU";
  return (
    <section className={classes.waiting} aria-label="What it waits for">
      <Text size="sm" fw={600} className={classes.reason ?? ""}>
        {entry.reason}
      </Text>
      <Text size="xs" c="dimmed">
        {entry.position === 1 ? "next in the queue" : `number ${entry.position} in the queue`} ·
        needs {plural(entry.needs.count, device)}
        {entry.earliest_start ? (
          <>
            {" "}
            · not before <Moment value={entry.earliest_start} />
          </>
        ) : null}
        {job.reason && job.state === "recovering" ? ` · ${job.reason}` : ""}
      </Text>
    </section>
  );
}

function Facts({ job }: { job: Job }) {
  const now = useNow();
  const spec = job.spec as { parallelism?: { strategy?: string }; task?: { name?: string } | null };
  const begun = job.started_at ? Date.parse(job.started_at) : null;
  const ended = job.finished_at ? Date.parse(job.finished_at) : now;
  return (
    <Text size="xs" c="dimmed" className={classes.facts ?? ""}>
      <span>{spec.task?.name ? `task ${spec.task.name}` : "script"}</span>
      <span>{plural(job.world_size, "worker")}</span>
      {spec.parallelism?.strategy && spec.task ? <span>{spec.parallelism.strategy}</span> : null}
      {job.attempt > 0 ? <span>attempt {job.attempt}</span> : null}
      {job.priority !== 0 ? <span>priority {job.priority}</span> : null}
      <span>
        submitted <Ago value={job.created_at} />
      </span>
      {begun !== null ? (
        <span>
          {isFinal(job.state) ? "took" : "started"}{" "}
          {isFinal(job.state) ? duration((ended - begun) / 1000) : <Ago value={job.started_at} />}
        </span>
      ) : null}
    </Text>
  );
}

/** The stream is ahead of what was read; both go back when a job takes steps again. */
export function presentStep(job: Job, live: JobLive): number {
  const last = live.curves.get("loss")?.last?.step ?? live.curves.get("step_seconds")?.last?.step;
  return last ?? job.step;
}

function JobProgress({ job, live }: Props) {
  const step = presentStep(job, live);
  const total = job.total_steps;
  if (step === 0 && total === null) return null;
  const share = total ? Math.min(100, (100 * step) / total) : 0;
  const left = job.state === "running" ? secondsLeft(live.curves.get("loss"), step, total) : null;
  return (
    <div className={classes.progress}>
      <Progress
        value={share}
        size="md"
        radius="sm"
        aria-label="Progress"
        color={job.state === "failed" ? "red" : job.state === "completed" ? "teal" : undefined}
      />
      <div className={classes.progressText}>
        <Text size="sm" className="numbers" data-testid="step">
          step {count(step)}
          {total ? ` of ${count(total)}` : ""}
        </Text>
        <Text size="sm" c="dimmed" className="numbers">
          {total ? `${Math.floor(share)} %` : ""}
          {left !== null && left > 0 ? ` · ${duration(left)} left` : ""}
        </Text>
      </div>
    </div>
  );
}

const FIGURES = [
  ["Loss", "loss", metric],
  ["Held-out loss", "eval_loss", metric],
  ["Held-out accuracy", "eval_accuracy", metric],
  ["Samples per second", "samples_per_second", si],
  ["Step time", "step_seconds", duration],
] as const;

/** The last value of what the job reports; a job that reports nothing has no such tiles. */
function Numbers({ job, live }: Props) {
  const told = FIGURES.flatMap(([label, name, format]) => {
    const given = job.metrics[name];
    const value = live.curves.latest(name) ?? (typeof given === "number" ? given : null);
    const text = value === null ? given : format(value);
    return typeof text === "string" ? [{ label, name, text }] : [];
  });
  if (told.length === 0) return null;
  return (
    <dl className={classes.figures} data-live={isActive(job.state) || undefined}>
      {told.map(({ label, name, text }) => (
        <div key={name}>
          <Text component="dt" size="xs" c="dimmed">
            {label}
          </Text>
          <dd data-metric={name}>{text}</dd>
        </div>
      ))}
    </dl>
  );
}
