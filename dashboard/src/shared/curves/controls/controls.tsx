import {
  Button,
  Group,
  NumberInput,
  SegmentedControl,
  Select,
  Slider,
  Switch,
  Text,
} from "@mantine/core";
import { useState } from "react";
import { positionText } from "@/shared/curves/chart/legend";
import { type Axis, metricOf, type Range } from "@/shared/curves/data/axis";
import { count } from "@/shared/format";
import { SearchField } from "@/shared/ui/search-field";
import { isPattern } from "./arrange";
import classes from "./controls.module.css";
import { type CurveView, MAX_SMOOTHING, rangeOf } from "./view";

interface Props {
  view: CurveView;
  onChange: (change: CurveView) => void;
  /** The value while the slider is dragged, which is not in the URL yet. */
  onSmoothing: (smoothing: number | null) => void;
  /** The metrics that can be the horizontal axis. */
  metrics: readonly string[];
  /** Whether there are series of single ranks to draw. */
  hasRanks?: boolean;
  /** Further commands. */
  children?: React.ReactNode;
}

// The interesting values are near 1, so the slider is quadratic in `1 - smooth`.
const toSlider = (smooth: number) => 1 - Math.sqrt(1 - smooth);
const fromSlider = (at: number) =>
  Math.min(MAX_SMOOTHING, Math.round((1 - (1 - at) ** 2) * 1000) / 1000);

/** Controls for all charts of a page. */
export function CurveControls(props: Props) {
  const { view, onChange, onSmoothing, hasRanks = false } = props;
  const { x = "step", smooth = 0 } = view;
  const [dragged, setDragged] = useState<number | null>(null);
  return (
    <div className={classes.controls}>
      <AxisChoice
        axis={x}
        metrics={props.metrics}
        onChange={(next) =>
          onChange({ x: next === "step" ? undefined : next, from: undefined, to: undefined })
        }
      />
      <Group gap="xs">
        <Text size="xs" c="dimmed">
          Smoothing
        </Text>
        <Slider
          w={120}
          size="sm"
          min={0}
          max={1}
          step={0.01}
          label={(at) => fromSlider(at).toString()}
          thumbLabel="Smoothing"
          value={dragged ?? toSlider(smooth)}
          onChange={(at) => {
            setDragged(at);
            onSmoothing(fromSlider(at));
          }}
          onChangeEnd={(at) => {
            setDragged(null);
            onSmoothing(null);
            onChange({ smooth: fromSlider(at) || undefined });
          }}
        />
      </Group>
      <Switch
        size="xs"
        label="Log scale"
        checked={view.log ?? false}
        onChange={(event) => onChange({ log: event.currentTarget.checked || undefined })}
      />
      <Switch
        size="xs"
        label="Ignore outliers"
        checked={view.trim ?? false}
        onChange={(event) => onChange({ trim: event.currentTarget.checked || undefined })}
      />
      {hasRanks ? (
        <Switch
          size="xs"
          label="Per-rank curves"
          checked={view.ranks ?? false}
          onChange={(event) => onChange({ ranks: event.currentTarget.checked || undefined })}
        />
      ) : null}
      <SearchField
        w={190}
        aria-label="Filter charts"
        placeholder="Filter: loss|^val"
        value={view.charts ?? ""}
        error={isPattern(view.charts ?? "") ? null : "Not a regular expression"}
        onSearch={(text) => onChange({ charts: text || undefined })}
      />
      <Zoom key={`${view.from}-${view.to}`} view={view} onChange={onChange} />
      {props.children}
    </div>
  );
}

interface AxisProps {
  axis: Axis;
  metrics: readonly string[];
  onChange: (axis: Axis) => void;
}

function AxisChoice({ axis, metrics, onChange }: AxisProps) {
  const metric = metricOf(axis);
  const names = [...new Set(metric === null ? metrics : [metric, ...metrics])].sort();
  return (
    <Group gap="xs">
      <Text size="xs" c="dimmed" id="curves-x">
        X axis
      </Text>
      <SegmentedControl
        size="xs"
        aria-labelledby="curves-x"
        data={[
          { value: "step", label: "Step" },
          { value: "elapsed", label: "Relative time" },
          { value: "time", label: "Wall time" },
        ]}
        value={metric === null ? axis : ""}
        onChange={(next) => onChange(next as Axis)}
      />
      <Select
        size="xs"
        w={160}
        aria-label="Metric on the X axis"
        placeholder="Metric"
        searchable
        clearable
        data={names}
        value={metric}
        onChange={(name) => onChange(name === null ? "step" : `metrics.${name}`)}
      />
    </Group>
  );
}

function Zoom({ view, onChange }: Pick<Props, "view" | "onChange">) {
  const range = rangeOf(view);
  const [open, setOpen] = useState(false);
  const reset = () => onChange({ from: undefined, to: undefined });
  if (open) return <StepsForm range={range} onChange={onChange} onClose={() => setOpen(false)} />;
  return (
    <div className={classes.zoom}>
      {range === null ? (
        <Text size="xs" c="dimmed" visibleFrom="md">
          Drag on a chart to zoom
        </Text>
      ) : (
        <>
          <Text size="xs" className="numbers">
            {rangeText(range, view.x ?? "step")}
          </Text>
          <Button size="compact-xs" variant="default" onClick={reset}>
            Reset zoom
          </Button>
        </>
      )}
      {(view.x ?? "step") === "step" ? (
        <Button size="compact-xs" variant="default" onClick={() => setOpen(true)}>
          Step range…
        </Button>
      ) : null}
    </div>
  );
}

interface StepsProps {
  range: Range | null;
  onChange: Props["onChange"];
  onClose: () => void;
}

/** The keyboard's way to zoom. */
function StepsForm({ range, onChange, onClose }: StepsProps) {
  const [from, setFrom] = useState<number | string>(range?.from ?? 1);
  const [to, setTo] = useState<number | string>(range?.to ?? "");
  const good = typeof from === "number" && typeof to === "number" && from < to;
  return (
    <form
      className={classes.zoom}
      onSubmit={(event) => {
        event.preventDefault();
        if (good) onChange({ from, to });
        onClose();
      }}
    >
      <NumberInput
        size="xs"
        className={classes.steps ?? ""}
        aria-label="From step"
        placeholder="from"
        min={0}
        hideControls
        allowDecimal={false}
        value={from}
        onChange={setFrom}
      />
      <NumberInput
        size="xs"
        className={classes.steps ?? ""}
        aria-label="To step"
        placeholder="to"
        min={1}
        hideControls
        allowDecimal={false}
        value={to}
        onChange={setTo}
        data-autofocus
        autoFocus
      />
      <Button size="compact-xs" type="submit" disabled={!good}>
        Zoom
      </Button>
      <Button size="compact-xs" variant="default" onClick={onClose}>
        Close
      </Button>
    </form>
  );
}

function rangeText({ from, to }: Range, axis: Axis): string {
  if (axis === "step") return `steps ${count(from)} to ${count(to)}`;
  return `${positionText(from, axis)} to ${positionText(to, axis)}`;
}

/** The text in place of charts, of which the filter leaves none. */
export function NoMatch() {
  return (
    <Text size="sm" c="dimmed">
      No chart matches the filter.
    </Text>
  );
}
