import { Group, Text } from "@mantine/core";
import type { Experiment } from "@/shared/api/types";
import { count, metric, plural } from "@/shared/format";
import { OwnerFacts, RunFacts, RunProgress, RunReason, RunTitle } from "@/shared/page/run-header";
import { AnchorLink } from "@/shared/ui/links";
import { Ago } from "@/shared/ui/time";
import { ownReason, runsOf, stepsText } from "../runs";
import { fieldLabels, kindText, specOf, valueText } from "../spec";
import { ExperimentCommands } from "./commands";
import classes from "./header.module.css";
import { ReportMenu } from "./report-menu";

/** The value of the objective that counts. */
const AT_TEXT = { best: " at any step", last: " at the end", median: ", median of the steps" };

export function Header({ experiment }: { experiment: Experiment }) {
  const { objective, parallel = 0, repeats = 1 } = specOf(experiment);
  const reason = ownReason(experiment);
  return (
    <header>
      <RunTitle
        what="experiment"
        run={experiment}
        commands={
          <Group gap="xs">
            <ReportMenu experiment={experiment} />
            <ExperimentCommands experiment={experiment} />
          </Group>
        }
      />
      {reason !== "" ? <RunReason text={reason} /> : null}
      <RunFacts>
        <OwnerFacts of={experiment} />
        <span>{kindText(experiment)}</span>
        <span>
          {objective.goal === "max" ? "highest" : "lowest"} {objective.metric}
          {AT_TEXT[objective.at ?? "last"]}
        </span>
        {repeats > 1 ? <span>{repeats} runs of each trial</span> : null}
        <span>{plural(parallel, "run")} at a time</span>
        <span>
          created <Ago value={experiment.created_at} />
        </span>
      </RunFacts>
      <Runs experiment={experiment} />
      <Best experiment={experiment} />
    </header>
  );
}

function Runs({ experiment }: { experiment: Experiment }) {
  const { total, completed, percent, others } = runsOf(experiment);
  const steps = stepsText(experiment);
  return (
    <RunProgress state={experiment.state} percent={percent}>
      <Text size="sm" mt={4} className="numbers" data-testid="runs">
        {count(completed)} of {plural(total, "run")} completed
        {others === "" ? "" : `, ${others}`}
      </Text>
      {steps === null ? null : (
        <Text size="xs" c="dimmed" className="numbers">
          {steps}
        </Text>
      )}
    </RunProgress>
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
          {best.step === null ? "" : ` so far, at step ${count(best.step)}`}
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
        {best.ties.length > 0 ? (
          <Text size="xs" c="dimmed">
            tied with {best.ties.length > 1 ? "trials" : "trial"} {best.ties.join(" and ")}
          </Text>
        ) : null}
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
