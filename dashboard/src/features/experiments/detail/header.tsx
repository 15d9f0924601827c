import { Breadcrumbs, Group, Progress, Text, Title } from "@mantine/core";
import { type Experiment, hasReason } from "@/shared/api/types";
import { count, metric, plural } from "@/shared/format";
import { CopyIconButton } from "@/shared/ui/copy-button";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { runsOf } from "../runs";
import { fieldLabels, specOf, valueText } from "../spec";
import { ExperimentCommands } from "./commands";
import classes from "./header.module.css";

export function Header({ experiment }: { experiment: Experiment }) {
  const { id, name, state, created_at } = experiment;
  const { objective, method, parallel = 0, repeats = 1 } = specOf(experiment);
  return (
    <header>
      <Breadcrumbs separator="/" mb={6}>
        <AnchorLink to="/experiments" size="xs">
          Experiments
        </AnchorLink>
        <Group gap={2}>
          <Text size="xs" c="dimmed" ff="monospace">
            {id}
          </Text>
          <CopyIconButton value={id} label="Copy experiment id" />
        </Group>
      </Breadcrumbs>
      <Group justify="space-between" align="flex-start" gap="md">
        <Group gap="sm" className={classes.titles ?? ""}>
          <Title order={1} size="h3" className={classes.name ?? ""}>
            {name}
          </Title>
          <span data-testid="experiment-state">
            <StateBadge state={state} size="md" />
          </span>
        </Group>
        <ExperimentCommands experiment={experiment} />
      </Group>
      {hasReason(experiment) ? (
        <Text size="sm" mt={8} className={classes.name ?? ""}>
          <LinkedText text={experiment.reason} />
        </Text>
      ) : null}
      <Text size="xs" c="dimmed" className={classes.facts ?? ""}>
        <span>{method}</span>
        <span>
          {objective.goal === "max" ? "highest" : "lowest"} {objective.metric}
          {objective.at === "best" ? " at any step" : ""}
        </span>
        {repeats > 1 ? <span>{repeats} runs of each trial</span> : null}
        <span>{plural(parallel, "run")} at a time</span>
        <span>
          created <Ago value={created_at} />
        </span>
      </Text>
      <Runs experiment={experiment} />
      <Best experiment={experiment} />
    </header>
  );
}

function Runs({ experiment }: { experiment: Experiment }) {
  const { total, completed, ended, others } = runsOf(experiment);
  return (
    <div className={classes.progress}>
      <Progress
        value={total === 0 ? 0 : (100 * ended) / total}
        size="md"
        radius="sm"
        aria-label="Progress"
        color={
          experiment.state === "failed"
            ? "red"
            : experiment.state === "completed"
              ? "teal"
              : undefined
        }
      />
      <Text size="sm" mt={4} className="numbers" data-testid="runs">
        {count(completed)} of {plural(total, "run")} completed
        {others === "" ? "" : `, ${others}`}
      </Text>
    </div>
  );
}

/** The best trial so far: its value and its values of the space. */
function Best({ experiment }: { experiment: Experiment }) {
  const { best } = experiment;
  if (best === null) return null;
  const { objective, space } = specOf(experiment);
  const labels = fieldLabels(Object.keys(space));
  return (
    <section className={`app-card ${classes.best}`} aria-label="Best trial">
      <div>
        <Text size="xs" c="dimmed">
          best {objective.metric}
        </Text>
        <Text size="lg" fw={600} className="numbers">
          {metric(best.value)}
        </Text>
        {best.job_id === null ? (
          <Text size="xs" c="dimmed">
            trial {best.trial}
          </Text>
        ) : (
          <AnchorLink to="/jobs/$jobId" params={{ jobId: best.job_id }} size="xs">
            trial {best.trial}
          </AnchorLink>
        )}
      </div>
      <dl className={classes.values}>
        {Object.entries(best.values).map(([field, value]) => (
          <div key={field}>
            <Text component="dt" size="xs" c="dimmed" title={field}>
              {labels[field] ?? field}
            </Text>
            <Text component="dd" size="sm" className="numbers" title={JSON.stringify(value)}>
              {valueText(value)}
            </Text>
          </div>
        ))}
      </dl>
    </section>
  );
}
