import { Badge, Code, Group, Text } from "@mantine/core";
import { plainText } from "@/shared/ansi";
import type { Job } from "@/shared/api/types";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { Moment } from "@/shared/ui/time";
import { causeOf, type Incident, stagesOf } from "./incident";
import classes from "./incident-report.module.css";
import { exitText } from "./timeline";

interface Props {
  job: Job;
  attempt: number;
  incident: Incident;
}

/** A report of one failure: its cause, the reaction, and the time that recovery took. */
export function IncidentReport({ job, attempt, incident }: Props) {
  const { failure, is_move: moved } = incident;
  const stages = stagesOf(incident);
  const lines = (failure.log_tail ?? "").trimEnd().split("\n").map(plainText).join("\n");
  // The message of a script often ends with its only line.
  const tail = failure.message.includes(lines) ? "" : lines;
  return (
    <section
      className={classes.report}
      data-moved={moved || undefined}
      aria-label={`${moved ? "End" : "Failure"} of attempt ${attempt}, generation ${incident.generation}: ${causeOf(failure)}`}
    >
      <Group justify="space-between" gap="xs">
        <Group gap="xs">
          <Badge color={moved ? "gray" : "red"} variant="light" radius="sm">
            {causeOf(failure)}
          </Badge>
          <Text size="xs" c="dimmed">
            {[exitText(failure), failure.node, failure.evidence].filter(Boolean).join(" · ")}
          </Text>
        </Group>
        <Group gap="sm">
          {incident.happened_at ? (
            <Text size="xs" c="dimmed">
              <Moment value={incident.happened_at} />
            </Text>
          ) : null}
          {typeof failure.rank === "number" ? (
            <AnchorLink
              size="xs"
              to="/jobs/$jobId"
              params={{ jobId: job.id }}
              search={{ tab: "logs", attempt, rank: failure.rank }}
            >
              View logs
            </AnchorLink>
          ) : null}
        </Group>
      </Group>
      <Text size="sm" fw={600}>
        <LinkedText text={failure.message} />
      </Text>
      <Text size="xs" c="dimmed">
        {incident.done}
        {typeof failure.step === "number"
          ? ` · ${moved ? "stopped" : "failed"} after step ${failure.step}`
          : ""}
      </Text>
      {stages.length > 0 ? (
        <dl className={classes.stages}>
          {stages.map(({ label, text }) => (
            <div key={label}>
              <Text component="dt" size="xs" c="dimmed">
                {label}
              </Text>
              <dd className="numbers">{text}</dd>
            </div>
          ))}
        </dl>
      ) : null}
      {tail ? (
        <Code block className={classes.tail ?? ""} tabIndex={0}>
          {tail}
        </Code>
      ) : null}
    </section>
  );
}
