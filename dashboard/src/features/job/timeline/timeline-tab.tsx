import { Group, Skeleton, Stack, Text } from "@mantine/core";
import { useAttempts } from "@/features/job/api/attempts";
import { type Attempt, isFinished, type Job, type JobEvent } from "@/shared/api/types";
import { duration, timeZone } from "@/shared/format";
import type { JobLive } from "@/shared/live/job-live";
import { useSignal } from "@/shared/live/signal";
import { useNow } from "@/shared/now";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { Moment } from "@/shared/ui/time";
import { DeviceHours } from "./device-hours";
import { IncidentReport } from "./incident-report";
import { QueueHistory } from "./queue-history";
import { StateBar } from "./state-bar";
import {
  type AttemptSection,
  attemptSections,
  checkpointSummary,
  type EventGroup,
  failuresOf,
  savedCheckpoints,
  statePeriods,
  workersOf,
} from "./timeline";
import classes from "./timeline.module.css";

/** The job's history at a glance, then every attempt with its events. */
export function TimelineTab({ job, live }: { job: Job; live: JobLive }) {
  const events = useSignal(live.events);
  const attempts = useAttempts(job.id);
  const now = useNow();
  const last = events.at(-1);
  if (!attempts.data) return <Pending query={attempts} what="the attempts" />;
  if (last === undefined) return <Skeleton height={160} />;
  const zone = timeZone();
  const ended = job.finished_at ? Date.parse(job.finished_at) : Date.parse(last.time);
  return (
    <Stack gap="md">
      <StateBar
        periods={statePeriods(events, isFinished(job) ? ended : now)}
        failures={failuresOf(attempts.data)}
        checkpoints={savedCheckpoints(events)}
      />
      <QueueHistory job={job} now={now} zone={zone} />
      <DeviceHours job={job} />
      <Text size="xs" c="dimmed">
        Times in {zone}
      </Text>
      {attemptSections(events, attempts.data).map((section) => (
        <SectionCard key={section.number} job={job} section={section} zone={zone} />
      ))}
    </Stack>
  );
}

interface SectionProps {
  job: Job;
  section: AttemptSection;
  /** The time zone that the tab names. */
  zone: string;
}

function SectionCard({ job, section, zone }: SectionProps) {
  const { number, attempt, groups } = section;
  const title = number === 0 ? "Before the first attempt" : `Attempt ${number}`;
  return (
    <section className={`app-card ${classes.card}`} aria-label={title}>
      <Group justify="space-between">
        <Group gap="sm">
          <Text fw={600}>{title}</Text>
          {attempt ? <StateBadge state={attempt.state} /> : null}
        </Group>
        {attempt ? (
          <AnchorLink
            size="sm"
            to="/jobs/$jobId"
            params={{ jobId: job.id }}
            search={{ tab: "logs", attempt: number }}
          >
            Logs
          </AnchorLink>
        ) : null}
      </Group>
      {attempt ? <Facts attempt={attempt} /> : null}
      {attempt?.timeline.map((incident) => (
        <IncidentReport key={incident.generation} job={job} attempt={number} incident={incident} />
      ))}
      <ol className={classes.events}>
        {groups.map((group) => (
          <GroupRow key={group[0]?.seq} group={group} zone={zone} />
        ))}
      </ol>
    </section>
  );
}

function Facts({ attempt }: { attempt: Attempt }) {
  const now = useNow();
  const end = attempt.finished_at ? Date.parse(attempt.finished_at) : now;
  return (
    <Text size="xs" c="dimmed" className={classes.facts ?? ""}>
      started <Moment value={attempt.started_at} /> · {attempt.finished_at ? "ran" : "running"} for{" "}
      {duration((end - Date.parse(attempt.started_at)) / 1000)} · {workersOf(attempt)}
      {attempt.generation > 1 ? ` · generation ${attempt.generation}` : ""}
      {attempt.allocation.map((node) => (
        <NodePlacement key={node.node_id} node={node} />
      ))}
    </Text>
  );
}

function GroupRow({ group, zone }: { group: EventGroup; zone: string }) {
  const [newest] = group;
  const oldest = group.at(-1);
  if (newest === undefined || oldest === undefined) return null;
  if (group.length === 1) return <EventRow event={newest} zone={zone} />;
  return (
    <li className={classes.event} data-kind="checkpoint">
      <span className={classes.time}>
        <Moment value={newest.time} zone={zone} />
      </span>
      <details>
        <summary>
          checkpoints: {checkpointSummary(group)} since <Moment value={oldest.time} zone={zone} />
        </summary>
        <ol className={classes.events}>
          {group.map((event) => (
            <EventRow key={event.seq} event={event} zone={zone} />
          ))}
        </ol>
      </details>
    </li>
  );
}

function EventRow({ event, zone }: { event: JobEvent; zone: string }) {
  const state = event.kind === "state" ? event.data.state : undefined;
  const failed = event.kind === "attempt" && event.data.state === "failed";
  const bad = failed || event.kind === "not_saved";
  return (
    <li
      className={classes.event}
      data-seq={event.seq}
      data-kind={event.kind}
      data-bad={bad || undefined}
    >
      <span className={classes.time}>
        <Moment value={event.time} zone={zone} />
      </span>
      <span className={classes.kind}>
        {typeof state === "string" ? <StateBadge state={state} /> : event.kind.replace("_", " ")}
      </span>
      <span className={classes.reason}>
        {event.reason === state ? null : <LinkedText text={event.reason} />}
      </span>
    </li>
  );
}

function NodePlacement({ node }: { node: Attempt["allocation"][number] }) {
  const ranks = node.ranks.map((rank) => rank.rank);
  const devices = node.ranks.map((rank) => rank.device_index);
  const kind = node.ranks[0]?.device_kind === "cuda" ? "GPU" : "slot";
  return (
    <>
      {` · ${numbered("rank", ranks)} on `}
      <AnchorLink
        to="/nodes"
        search={{ search: node.node_name, open: node.node_name }}
        inherit
        // Colour alone does not set it off from the text around it.
        underline="always"
      >
        {node.node_name}
      </AnchorLink>
      {` (${numbered(kind, devices)})`}
    </>
  );
}

/** "rank 3", "ranks 0 to 7", "ranks 0, 2, 5". */
function numbered(noun: string, numbers: number[]): string {
  const [first = 0] = numbers;
  const last = numbers.at(-1) ?? first;
  if (numbers.length === 1) return `${noun} ${first}`;
  const contiguous = numbers.every((number, i) => number === first + i);
  return `${noun}s ${contiguous && numbers.length > 2 ? `${first} to ${last}` : numbers.join(", ")}`;
}
