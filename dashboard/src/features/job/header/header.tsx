import { Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ExperimentRun, ParallelismSpec } from "@/client";
import { Annotations } from "@/features/job/annotations/annotations";
import { useAttempts } from "@/features/job/api/attempts";
import { PortButton } from "@/features/job/ports/port-button";
import { plainText } from "@/shared/ansi";
import { useQueueEntry } from "@/shared/api/cluster";
import { lastLineOptions } from "@/shared/api/jobs";
import {
  hasReason,
  isActive,
  isFinished,
  isRun,
  type Job,
  type QueueEntry,
} from "@/shared/api/types";
import { ranSeconds, useElapsed } from "@/shared/elapsed";
import { count, duration, plural } from "@/shared/format";
import { JobCommands } from "@/shared/job-commands";
import type { JobLive } from "@/shared/live/job-live";
import { useSignal } from "@/shared/live/signal";
import { useCurveVersion } from "@/shared/live/use-job-live";
import { useSampleTime } from "@/shared/now";
import { OwnerFacts, RunFacts, RunProgress, RunReason, RunTitle } from "@/shared/page/run-header";
import { earlierPosition } from "@/shared/queue-history";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { Ago } from "@/shared/ui/time";
import { ExperimentMenu } from "./experiment-menu";
import classes from "./header.module.css";
import { headlines } from "./headline";
import { InteractiveUse } from "./interactive";
import { meshText, scheduleOf, syncOf } from "./mesh";
import { PlanCard } from "./plan-card";
import { secondsLeft } from "./progress";
import { ResizeButton } from "./resize-button";
import { StreamBadge } from "./stream-badge";
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
      <RunTitle
        what="job"
        run={job}
        // A finished job no longer changes, so the state of its stream says nothing.
        status={
          isFinished(job) ? (
            <Archived job={job} />
          ) : (
            <StreamBadge status={status} onRetry={live.retryNow} />
          )
        }
        commands={
          <Group gap="xs">
            {isRun(job) ? null : (
              <>
                <ExperimentMenu job={job} />
                <PortButton job={job} />
                <ResizeButton job={job} />
              </>
            )}
            <JobCommands job={job} />
          </Group>
        }
      />
      <Reason job={job} />
      <InteractiveUse job={job} />
      <Warnings job={job} />
      <Facts job={job} />
      <Annotations job={job} />
      {job.plan ? <PlanCard plan={job.plan} /> : null}
      <JobProgress job={job} live={live} />
      <LastLine job={job} live={live} />
      <Tiles job={job} live={live} />
    </header>
  );
}

function Archived({ job }: { job: Job }) {
  if (!job.archived) return null;
  return (
    <Text size="xs" c="dimmed">
      archived
    </Text>
  );
}

/** The reason for the job's state; for a waiting job also its position in the queue. */
function Reason({ job }: { job: Job }) {
  const waits = job.state === "queued" || job.state === "recovering";
  const place = useQueueEntry(job.id, waits);
  const now = useSampleTime();
  const entry = waits ? place.data : null;
  if (!entry) {
    if (!hasReason(job)) return null;
    return <RunReason text={job.reason} />;
  }
  return (
    <section className={classes.waiting} aria-label="Queue position">
      <Text size="sm" fw={600} className={classes.reason ?? ""}>
        <LinkedText text={entry.reason} />
      </Text>
      <Text size="xs" c={entry.can_start ? "dimmed" : "red"}>
        {placeText(entry, now)}
      </Text>
    </section>
  );
}

function placeText(entry: QueueEntry, now: number): string {
  const { can_start, position, history, reason_code } = entry;
  if (!can_start) {
    const where = reason_code === "quota_too_small" ? "under its quota" : "on this cluster";
    return `can never start ${where}`;
  }
  const place = position === 1 ? "next in the queue" : `position ${position} in the queue`;
  return [place, earlierPosition(history ?? [], now, position)]
    .filter((text) => text !== "")
    .join("; ");
}

function kindOf(job: Job): string {
  const { task } = (job.spec ?? {}) as { task?: { name?: string } | null };
  if (job.interactive) return "interactive";
  return task?.name ? `task ${task.name}` : "script";
}

function Facts({ job }: { job: Job }) {
  const spec = (job.spec ?? {}) as {
    parallelism?: ParallelismSpec;
    task?: { name?: string } | null;
  };
  // A script parallelizes its model by itself; a plan replaces the strategy `auto`.
  const parallelism = job.plan ? (job.plan.parallelism as ParallelismSpec) : spec.parallelism;
  const details = spec.task && parallelism ? parallelismOf(parallelism, job) : [];
  return (
    <RunFacts>
      <OwnerFacts of={job} />
      {job.experiment ? <ExperimentLink run={job.experiment} /> : null}
      {isRun(job) ? (
        <>
          <span>run, logged from elsewhere</span>
          {job.group === null ? null : <span>group {job.group}</span>}
        </>
      ) : (
        <>
          <span>{kindOf(job)}</span>
          <span>{plural(job.world_size, "worker")}</span>
        </>
      )}
      {details.map((text) => (
        <span key={text}>{text}</span>
      ))}
      {job.attempt > 0 ? <span>attempt {job.attempt}</span> : null}
      {job.priority !== 0 ? <span>priority {job.priority}</span> : null}
      {isRun(job) ? null : (
        <span>
          submitted <Ago value={job.created_at} />
        </span>
      )}
      {job.started_at === null || job.finished_at !== null ? null : (
        <span>
          started <Ago value={job.started_at} />
        </span>
      )}
      {job.running_since === null && (job.attempt > 0 || isRun(job)) ? (
        <span>ran for {duration(ranSeconds(job, 0))}</span>
      ) : null}
    </RunFacts>
  );
}

/** The trial of an experiment that the job is a run of. */
function ExperimentLink({ run: { id, trial, repeat } }: { run: ExperimentRun }) {
  return (
    <span>
      <AnchorLink to="/experiments/$experimentId" params={{ experimentId: id }} size="xs">
        trial {trial} of an experiment
      </AnchorLink>
      {repeat > 1 ? `, repeat ${repeat}` : ""}
    </span>
  );
}

/** Strategy, mesh, schedule and gradient sync, without those that are plain defaults. */
function parallelismOf(parallelism: ParallelismSpec, job: Job): string[] {
  const mesh = meshText(job.mesh ?? {});
  const { strategy = "" } = parallelism;
  const plain = strategy === "ddp" && mesh === `data ${job.world_size}`;
  return [
    plain || mesh === "" ? strategy : `${strategy} on mesh ${mesh}`,
    scheduleOf(parallelism),
    syncOf(parallelism),
  ].filter((text) => text !== "");
}

/** The newest step. The stream is ahead of REST; both go back when a job repeats steps. */
function currentStep(job: Job, live: JobLive): number {
  return live.curves.stepwise()?.last?.step ?? job.step;
}

/** When the job's present ranks were started, in seconds since the epoch; null if none run. */
function useRanksBegan(job: Job): number | null {
  const attempt = useAttempts(job.id).data?.at(-1);
  const generation = attempt?.generations.at(-1);
  const isPresent = attempt?.attempt === job.attempt && generation?.generation === job.generation;
  if (job.state !== "running" || generation === undefined || !isPresent) return null;
  return Date.parse(generation.time) / 1000;
}

function JobProgress({ job, live }: Props) {
  const step = currentStep(job, live);
  const since = useRanksBegan(job);
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
  const left = since === null ? null : secondsLeft(live.curves.stepwise(), since, step, total);
  return (
    <RunProgress state={job.state} percent={share}>
      <div className={classes.progressText}>
        <Text size="sm" className="numbers" data-testid="step">
          step {count(step)} of {count(total)}
        </Text>
        <Text size="sm" c="dimmed" className="numbers">
          {Math.floor(share)} %{left !== null && left > 0 ? ` · ${duration(left)} left` : ""}
        </Text>
      </div>
    </RunProgress>
  );
}

/** Elapsed time and newest log line of a script that reports no steps. */
function LastLine({ job, live }: Props) {
  const elapsed = useElapsed(job);
  const silent = Boolean(job.spec?.script) && currentStep(job, live) === 0 && job.attempt > 0;
  const line = useQuery({ ...lastLineOptions(job.id, isActive(job)), enabled: silent });
  if (!silent || job.started_at === null) return null;
  return (
    <div className={classes.lastLine}>
      {isFinished(job) ? null : (
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

/** The headline metrics as tiles; nothing for a job that reports none. */
function Tiles({ job, live }: Props) {
  const tiles = headlines(job, live.curves);
  if (tiles.length === 0) return null;
  return (
    <dl className={classes.figures}>
      {tiles.map(({ name, label, text, of }) => (
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
