import { Group, Select, Text, Title } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { CurveStore } from "@/shared/curves/data/store";
import { count, plural } from "@/shared/format";
import { formatOf, labelOf } from "@/shared/live/metric-names";
import { background, rankHeat, rankMetrics } from "./rank-heat";
import classes from "./rank-heat-map.module.css";

/** The ends of the colours, as a key. */
const KEY = Array.from({ length: 12 }, (_, i) => i);

interface Props {
  jobId: string;
  curves: CurveStore;
  /** Left out: the time of a step. */
  metric: string | undefined;
  onMetric: (name: string | undefined) => void;
}

/** A row of colours for every rank, which shows at once which are slow, and when; each leads to its logs. */
export function RankHeatMap({ jobId, curves, metric = "step_seconds", onMetric }: Props) {
  const names = rankMetrics(curves);
  const heat = rankHeat(curves, metric);
  if (names.length === 0) return null;
  const format = formatOf(metric);
  return (
    <section aria-labelledby="rank-heat">
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5" id="rank-heat">
          Ranks
        </Title>
        <Select
          size="xs"
          w={230}
          aria-label="Metric of the ranks"
          data={names.map((name) => ({ value: name, label: labelOf(name) }))}
          value={metric}
          allowDeselect={false}
          onChange={(name) => onMetric(name === "step_seconds" ? undefined : (name ?? undefined))}
        />
      </Group>
      {heat === null ? (
        <Text size="sm" c="dimmed">
          No points of this metric.
        </Text>
      ) : (
        <div className={`app-card ${classes.map}`}>
          <ul className={classes.rows} aria-label={`${labelOf(metric)} by rank`}>
            {heat.rows.map(({ rank, cells, mean }) => (
              <li key={rank}>
                <Link
                  to="/jobs/$jobId"
                  params={{ jobId }}
                  search={{ tab: "logs", rank }}
                  className={classes.row}
                  title={`Logs of rank ${rank} · mean ${format(mean)}`}
                >
                  <span className={classes.rank}>rank {rank}</span>
                  <span
                    className={classes.cells}
                    style={{ background: background(cells, heat.low, heat.high) }}
                  />
                  <span className={classes.mean}>{format(mean)}</span>
                </Link>
              </li>
            ))}
          </ul>
          <Text size="xs" c="dimmed" className={classes.key ?? ""}>
            <span>
              {plural(heat.rows.length, "rank")}, steps {count(heat.first)} to {count(heat.last)},
              with the mean
            </span>
            <span className={classes.scale}>
              {format(heat.low)}
              <span
                className={classes.colors}
                style={{ background: background(KEY, 0, KEY.length - 1) }}
              />
              {format(heat.high)}
            </span>
          </Text>
        </div>
      )}
    </section>
  );
}
