import { Group, Text } from "@mantine/core";
import type { GradientHistogram as Counts } from "@/shared/api/types";
import { count, metric, plural } from "@/shared/format";
import { barsOf } from "./gradients";
import classes from "./gradients-tab.module.css";

/** Maximum width of a bar and minimum width of the axis, in pixels. */
const BAR_WIDTH = 28;
const MIN_WIDTH = 220;

interface Props {
  name: string;
  histogram: Counts;
  lowestExponent: number;
}

/** The magnitudes of one parameter's gradient, in powers of two. */
export function GradientHistogram({ name, histogram, lowestExponent }: Props) {
  const bars = barsOf(histogram, lowestExponent);
  const first = bars.at(0);
  const last = bars.at(-1);
  const total = bars.reduce((sum, bar) => sum + bar.count, histogram.zeros + histogram.not_finite);
  return (
    <div style={{ maxWidth: Math.max(MIN_WIDTH, bars.length * BAR_WIDTH) }}>
      <div className={classes.bars} role="img" aria-label={`Magnitudes of the gradient of ${name}`}>
        {bars.map((bar) => (
          <div
            key={bar.from}
            className={classes.bar}
            style={{ height: `${Math.max(bar.count > 0 ? 2 : 0, bar.share * 100)}%` }}
            title={`${metric(bar.from)} to ${metric(bar.from * 2)}: ${count(bar.count)}`}
          />
        ))}
      </div>
      {first !== undefined && last !== undefined ? (
        <Group justify="space-between" className="numbers">
          <Text size="xs" c="dimmed">
            {metric(first.from)}
          </Text>
          <Text size="xs" c="dimmed">
            magnitude
          </Text>
          <Text size="xs" c="dimmed">
            {metric(last.from * 2)}
          </Text>
        </Group>
      ) : null}
      <Text size="xs" c="dimmed" className="numbers">
        {plural(total, "value")}, {count(histogram.zeros)} zero
        {histogram.not_finite > 0 ? `, ${count(histogram.not_finite)} not finite` : ""}
      </Text>
    </div>
  );
}
