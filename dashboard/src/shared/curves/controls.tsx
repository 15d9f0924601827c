import { Button, Group, NumberInput, SegmentedControl, Slider, Switch, Text } from "@mantine/core";
import { useState } from "react";
import { duration } from "../format";
import type { Axis, Range } from "./axis";
import classes from "./controls.module.css";
import { type CurveView, MOST_SMOOTHING, rangeOf } from "./view";

interface Props {
  view: CurveView;
  onChange: (change: CurveView) => void;
  /** While the slider is dragged: shown, and not yet in the address. */
  onSmoothing: (smoothing: number | null) => void;
  /** Whether there are series of single ranks to draw. */
  hasRanks?: boolean;
  /** What else can be done with the curves. */
  children?: React.ReactNode;
}

// The interesting part of smoothing is near 1: the slider is quadratic in what is left out.
const toSlider = (smooth: number) => 1 - Math.sqrt(1 - smooth);
const fromSlider = (at: number) =>
  Math.min(MOST_SMOOTHING, Math.round((1 - (1 - at) ** 2) * 1000) / 1000);

/** How all charts of a page are drawn. */
export function CurveControls(props: Props) {
  const { view, onChange, onSmoothing, hasRanks = false } = props;
  const { x = "step", smooth = 0 } = view;
  const [dragged, setDragged] = useState<number | null>(null);
  return (
    <div className={classes.controls}>
      <Group gap="xs">
        <Text size="xs" c="dimmed" id="curves-x">
          Over
        </Text>
        <SegmentedControl
          size="xs"
          aria-labelledby="curves-x"
          data={[
            { value: "step", label: "Steps" },
            { value: "elapsed", label: "Time since start" },
            { value: "time", label: "Clock" },
          ]}
          value={x}
          onChange={(next) =>
            onChange({
              x: next === "step" ? undefined : (next as Axis),
              from: undefined,
              to: undefined,
            })
          }
        />
      </Group>
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
      {hasRanks ? (
        <Switch
          size="xs"
          label="Every rank"
          checked={view.ranks ?? false}
          onChange={(event) => onChange({ ranks: event.currentTarget.checked || undefined })}
        />
      ) : null}
      <Zoom key={`${view.from}-${view.to}`} view={view} onChange={onChange} />
      {props.children}
    </div>
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
          Drag in a chart to zoom
        </Text>
      ) : (
        <>
          <Text size="xs" className="numbers">
            {told(range, view.x ?? "step")}
          </Text>
          <Button size="compact-xs" variant="default" onClick={reset}>
            Show all
          </Button>
        </>
      )}
      {(view.x ?? "step") === "step" ? (
        <Button size="compact-xs" variant="default" onClick={() => setOpen(true)}>
          Steps…
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

/** The same as dragging, for the keyboard. */
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

function told({ from, to }: Range, axis: Axis): string {
  if (axis === "step")
    return `steps ${from.toLocaleString("en-US")} to ${to.toLocaleString("en-US")}`;
  if (axis === "elapsed") return `${duration(Math.max(0, from))} to ${duration(to)}`;
  const [begin, end] = [from, to].map((seconds) => new Date(seconds * 1000));
  return `${begin?.toLocaleString()} to ${end?.toLocaleTimeString()}`;
}
