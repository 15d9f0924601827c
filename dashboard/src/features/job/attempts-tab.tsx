import { Code, Group, Skeleton, Stack, Text } from "@mantine/core";
import { plainText } from "@/shared/ansi";
import type { Attempt, Job } from "@/shared/api/types";
import { duration, plural } from "@/shared/format";
import { useNow } from "@/shared/now";
import { Empty } from "@/shared/ui/empty";
import { AnchorLink } from "@/shared/ui/links";
import { Problem } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { Moment } from "@/shared/ui/time";
import { useAttempts } from "./api/list-attempts";
import classes from "./attempts-tab.module.css";

/** Every execution of the job, the newest first: where it ran, how it ended, and why. */
export function AttemptsTab({ job }: { job: Job }) {
  const attempts = useAttempts(job.id);
  if (attempts.error && !attempts.data) {
    return (
      <Problem
        error={attempts.error}
        what="The attempts could not be read"
        onRetry={() => void attempts.refetch()}
      />
    );
  }
  if (!attempts.data) return <Skeleton height={160} />;
  if (attempts.data.length === 0) {
    return <Empty title="No attempt yet">The job has not been placed on devices.</Empty>;
  }
  return (
    <Stack gap="md">
      {attempts.data.toReversed().map((attempt) => (
        <AttemptCard key={attempt.attempt} job={job} attempt={attempt} />
      ))}
    </Stack>
  );
}

function AttemptCard({ job, attempt }: { job: Job; attempt: Attempt }) {
  const now = useNow();
  const end = attempt.finished_at ? Date.parse(attempt.finished_at) : now;
  return (
    <section className={classes.card} aria-label={`Attempt ${attempt.attempt}`}>
      <Group justify="space-between">
        <Group gap="sm">
          <Text fw={600}>Attempt {attempt.attempt}</Text>
          <StateBadge state={attempt.state} />
        </Group>
        <AnchorLink
          size="sm"
          to="/jobs/$jobId"
          params={{ jobId: job.id }}
          search={{ tab: "logs", attempt: attempt.attempt }}
        >
          Logs
        </AnchorLink>
      </Group>
      <Text size="sm">{attempt.reason}</Text>
      <Text size="xs" c="dimmed">
        {plural(attempt.world_size, "worker")} · generation {attempt.generation} · started{" "}
        <Moment value={attempt.started_at} /> · {attempt.finished_at ? "ran for" : "running for"}{" "}
        {duration((end - Date.parse(attempt.started_at)) / 1000)}
      </Text>
      <Text size="xs" c="dimmed">
        {attempt.allocation.map(placed).join(" · ")}
      </Text>
      {attempt.failure ? <Failure failure={attempt.failure} /> : null}
    </section>
  );
}

function Failure({ failure }: { failure: NonNullable<Attempt["failure"]> }) {
  const tail = (failure.log_tail ?? "").trimEnd();
  return (
    <div className={classes.failure}>
      <Text size="sm" fw={600}>
        {failure.message}
      </Text>
      {tail ? (
        <Code block className={classes.tail ?? ""}>
          {tail.split("\n").map(plainText).join("\n")}
        </Code>
      ) : null}
    </div>
  );
}

function placed(node: Attempt["allocation"][number]): string {
  const ranks = node.ranks.map((rank) => rank.rank);
  const devices = node.ranks.map((rank) => `${rank.device_kind} ${rank.device_index}`);
  return `ranks ${ranks.join(", ")} on ${node.node_name} (${devices.join(", ")})`;
}
