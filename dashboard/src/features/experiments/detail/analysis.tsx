import { Group, Stack, Text, Title } from "@mantine/core";
import type { Experiment, Analysis as Found } from "@/shared/api/types";
import { percent } from "@/shared/format";
import { Command } from "@/shared/ui/command";
import { AgainIcon } from "@/shared/ui/icons";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { Pending, Problem } from "@/shared/ui/problem";
import { Ago } from "@/shared/ui/time";
import { useAnalysis } from "../api/experiments";
import { fieldLabels, specOf } from "../spec";
import classes from "./analysis.module.css";

/** What the runs show: findings, comparisons of the best trial, importance of the fields. */
export function Analysis({ experiment }: { experiment: Experiment }) {
  const query = useAnalysis(experiment);
  const { data: analysis, isFetching, refetch } = query;
  if (analysis === undefined) return <Pending query={query} what="the analysis" height={240} />;
  const compared = analysis.comparisons.filter(({ field }) => field !== null);
  return (
    <Stack gap="lg">
      {query.error ? <Problem error={query.error} what="Could not load the analysis" /> : null}
      <section aria-label="Findings" className={`app-card ${classes.section}`}>
        <Group justify="space-between" mb="xs">
          <Title order={2} size="h5">
            Findings
          </Title>
          <Group gap="sm">
            <Text size="xs" c="dimmed">
              analyzed <Ago value={analysis.generated_at} />
            </Text>
            {analysis.is_final ? null : (
              <Command
                label="Analyze again"
                icon={<AgainIcon />}
                busy={isFetching}
                onClick={() => void refetch()}
              />
            )}
          </Group>
        </Group>
        <Sentences texts={analysis.findings} />
      </section>
      {compared.length > 0 ? (
        <section aria-label="Comparisons" className={`app-card ${classes.section}`}>
          <Title order={2} size="h5" mb="xs">
            Comparisons
          </Title>
          <Sentences texts={compared.map(({ text }) => text)} />
        </section>
      ) : null}
      {analysis.importance.fields.length > 0 ? (
        <Importance experiment={experiment} analysis={analysis} />
      ) : null}
    </Stack>
  );
}

function Sentences({ texts }: { texts: readonly string[] }) {
  return (
    <ul className={classes.sentences}>
      {texts.map((text) => (
        <Text key={text} component="li" size="sm">
          <LinkedText text={text} />
        </Text>
      ))}
    </ul>
  );
}

/** A bar for each field with its share, and the interval of the share across it. */
function Importance({ experiment, analysis }: { experiment: Experiment; analysis: Found }) {
  const labels = fieldLabels(Object.keys(specOf(experiment).space));
  const { fields, note } = analysis.importance;
  return (
    <section aria-label="Importance" className={`app-card ${classes.section}`}>
      <Title order={2} size="h5">
        Importance
      </Title>
      <Text size="xs" c="dimmed" mb="sm">
        Share of each field in reaching a good {analysis.metric}, with 95 % intervals over the
        trials (PED-ANOVA). {note}
      </Text>
      <dl className={classes.bars}>
        {fields.map(({ field, share, interval: [low = 0, high = 1], has_effect: hasEffect }) => (
          <div key={field} className={classes.row}>
            <Text component="dt" size="sm" title={field} className={classes.field ?? ""}>
              <AnchorLink
                to="/experiments/$experimentId"
                params={{ experimentId: experiment.id }}
                search={{ x: field }}
                size="sm"
              >
                {labels[field] ?? field}
              </AnchorLink>
            </Text>
            <dd className={classes.track} data-effect={hasEffect}>
              <span className={classes.bar} style={{ width: `${100 * share}%` }} />
              <span
                className={classes.interval}
                style={{ left: `${100 * low}%`, width: `${100 * (high - low)}%` }}
              />
            </dd>
            <Text component="dd" size="sm" className={`numbers ${classes.text}`}>
              {percent(100 * share)}{" "}
              <Text span size="xs" c="dimmed">
                {percent(100 * low)} to {percent(100 * high)}
                {hasEffect ? "" : " · no effect shown"}
              </Text>
            </Text>
          </div>
        ))}
      </dl>
    </section>
  );
}
