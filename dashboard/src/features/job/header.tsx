import { Breadcrumbs, Group, Progress, Text, Title } from "@mantine/core";
import { plainText } from "@/shared/ansi";
import { useLastLine } from "@/shared/api/last-line";
import { usePlace } from "@/shared/api/read-queue";
import { isActive, isFinal, type Job, tellsMore } from "@/shared/api/types";
import { ranSeconds, useElapsed } from "@/shared/elapsed";
import { count, duration, plural } from "@/shared/format";
import { JobCommands } from "@/shared/job-commands";
import type { JobLive } from "@/shared/live/job-live";
import { useSignal } from "@/shared/live/signal";
import { useCurveVersion } from "@/shared/live/use-job-live";
import { StreamBadge } from "@/shared/stream-badge";
import { CopyIconButton } from "@/shared/ui/copy-button";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { Told } from "@/shared/ui/told";
import classes from "./header.module.css";
import { headlines } from "./headline";
import { meshOf, type Parallelism, scheduleOf, syncOf } from "./mesh";
import { PlanCard } from "./plan-card";
import { secondsLeft } from "./progress";
import { ResizeButton } from "./resize-button";
import { Warnings } from "./warnings";

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
        <Group gap={2}>
          <Text size="xs" c="dimmed" ff="monospace">
            {job.id}
          </Text>
          <CopyIconButton value={job.id} label="Copy the job's id" />
        </Group>
      </Breadcrumbs>
      <Group justify="space-between" align="flex-start" gap="md">
        <Group gap="sm" className={classes.titles ?? ""}>
          <Title order={1} size="h3" className={classes.name ?? ""}>
            {job.name}
          </Title>
          <span data-testid="job-state">
            <StateBadge state={job.state} size="md" />
          </span>
          {/* What has ended changes no more, whatever the stream is. */}
          {isFinal(job.state) ? null : <StreamBadge status={status} onRetry={live.retryNow} />}
        </Group>
        <Group gap="xs">
          <ResizeButton job={job} />
          <JobCommands job={job} />
        </Group>
      </Group>
      <Reason job={job} />
      <Warnings job={job} />
      <Facts job={job} />
      {job.plan ? <PlanCard plan={job.plan} /> : null}
      <JobProgress job={job} live={live} />
      <LastLine job={job} live={live} />
      <Numbers job={job} live={live} />
    </header>
  );
}

/** Why the job is in its state; of one that waits, for what, and how many are ahead of it. */
function Reason({ job }: { job: Job }) {
  const waits = job.state === "queued" || job.state === "recovering";
  const place = usePlace(job.id, waits);
  const entry = waits ? place.data : null;
  if (!entry) {
    if (!tellsMore(job)) return null;
    return (
      <Text size="sm" mt={4} className={classes.reason ?? ""}>
        <Told text={job.reason} />
      </Text>
    );
  }
  const device = entry.needs.device === "cpu" ? "CPU slot" : "GPU";
  return (
    <section className={classes.waiting} aria-label="What it waits for">
      <Text size="sm" fw={600} className={classes.reason ?? ""}>
        <Told text={entry.reason} />
      </Text>
      <Text size="xs" c="dimmed">
        {entry.position === 1 ? "next in the queue" : `number ${entry.position} in the queue`} ·
        needs {plural(entry.needs.count, device)}
        {job.reason && job.state === "recovering" ? ` · ${job.reason}` : ""}
      </Text>
    </section>
  );
}

function Facts({ job }: { job: Job }) {
  const spec = job.spec as { parallelism?: Parallelism; task?: { name?: string } | null };
  // A script spreads its model by itself.
  // What was planned takes the place of `auto`.
  const parallelism = job.plan ? (job.plan.parallelism as Parallelism) : spec.parallelism;
  const spread = spec.task && parallelism ? spreadOf(parallelism, job.world_size) : [];
  return (
    <Text size="xs" c="dimmed" className={classes.facts ?? ""}>
      <span>{spec.task?.name ? `task ${spec.task.name}` : "script"}</span>
      <span>{plural(job.world_size, "worker")}</span>
      {spread.map((told) => (
        <span key={told}>{told}</span>
      ))}
      {job.attempt > 0 ? <span>attempt {job.attempt}</span> : null}
      {job.priority !== 0 ? <span>priority {job.priority}</span> : null}
      <span>
        submitted <Ago value={job.created_at} />
      </span>
      {job.started_at === null || job.finished_at !== null ? null : (
        <span>
          started <Ago value={job.started_at} />
        </span>
      )}
      {job.running_since === null && job.attempt > 0 ? (
        <span>ran {duration(ranSeconds(job, 0))}</span>
      ) : null}
    </Text>
  );
}

/** How the model is spread: strategy, mesh, schedule and gradient sync, as far as they say something. */
function spreadOf(parallelism: Parallelism, workers: number): string[] {
  const mesh = meshOf(parallelism, workers);
  const { strategy = "" } = parallelism;
  const plain = strategy === "ddp" && mesh === `data ${workers}`;
  return [
    plain || mesh === "" ? strategy : `${strategy} on mesh ${mesh}`,
    scheduleOf(parallelism),
    syncOf(parallelism),
  ].filter((told) => told !== "");
}

/** The stream is ahead of what was read; both go back when a job takes steps again. */
export function presentStep(job: Job, live: JobLive): number {
  const last = live.curves.get("loss")?.last?.step ?? live.curves.get("step_seconds")?.last?.step;
  return last ?? job.step;
}

function JobProgress({ job, live }: Props) {
  const step = presentStep(job, live);
  const total = job.total_steps;
  if (total === null) {
    if (step === 0) return null;
    return (
      <Text size="sm" mt={10} className="numbers" data-testid="step">
        step {count(step)}
      </Text>
    );
  }
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
          step {count(step)} of {count(total)}
        </Text>
        <Text size="sm" c="dimmed" className="numbers">
          {Math.floor(share)} %{left !== null && left > 0 ? ` · ${duration(left)} left` : ""}
        </Text>
      </div>
    </div>
  );
}

/** Of a script that reports no steps: how long it runs, and the last that it wrote. */
function LastLine({ job, live }: Props) {
  const elapsed = useElapsed(job);
  const silent = Boolean(job.spec.script) && presentStep(job, live) === 0 && job.attempt > 0;
  const line = useLastLine(job.id, isActive(job.state), silent);
  if (!silent || job.started_at === null) return null;
  return (
    <div className={classes.lastLine}>
      {isFinal(job.state) ? null : (
        <Text size="sm" className="numbers" data-testid="elapsed">
          {elapsed}
        </Text>
      )}
      {line.data ? (
        <Text size="sm" c="dimmed" ff="monospace" truncate title={plainText(line.data.text)}>
          {plainText(line.data.text)}
        </Text>
      ) : null}
    </div>
  );
}

/** What of the job's numbers says most; a job that reports nothing has no such tiles. */
function Numbers({ job, live }: Props) {
  const told = headlines(job, live.curves);
  if (told.length === 0) return null;
  return (
    <dl className={classes.figures}>
      {told.map(({ name, label, text, of }) => (
        <div key={name}>
          <Text component="dt" size="xs" c="dimmed">
            {label}
          </Text>
          <dd data-metric={name}>{text}</dd>
          <Text component="dd" size="xs" c="dimmed">
            {of}
          </Text>
        </div>
      ))}
    </dl>
  );
}
