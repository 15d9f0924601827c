import { Badge, Group, Select, Skeleton, Stack, Text, UnstyledButton } from "@mantine/core";
import { useState } from "react";
import {
  isWaiting,
  useCaptureGradients,
  useGradients,
  useGradientsOfStep,
} from "@/features/job/api/gradients";
import { type GradientHistory, isFinished, type Job, type Remark } from "@/shared/api/types";
import { Sparkline } from "@/shared/curves/chart/sparkline";
import { count, metric, plural } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { Command } from "@/shared/ui/command";
import { Empty } from "@/shared/ui/empty";
import { Pending } from "@/shared/ui/problem";
import { GradientHistogram } from "./gradient-histogram";
import { magnitudes, ORDERS, type Order, ordered, type Row, rowsOf } from "./gradients";
import classes from "./gradients-tab.module.css";

const COLOURS: Record<Remark, string> = {
  "not finite": "red",
  exploding: "red",
  dead: "orange",
  vanishing: "orange",
};

const MEANING: Record<Remark, string> = {
  "not finite": "Contains NaN or infinity.",
  exploding: "More than 10 × its median so far.",
  dead: "Zero: the loss does not depend on this parameter.",
  vanishing: "Less than a millionth of the largest norm in this step.",
};

export function GradientsTab({ job }: { job: Job }) {
  const gradients = useGradients(job);
  const { data: history } = gradients;
  if (!history) return <Pending query={gradients} what="the gradients" />;
  return (
    <Stack gap="sm">
      <Top job={job} history={history} />
      {history.steps.length > 0 ? <Norms job={job} history={history} /> : <Nothing job={job} />}
    </Stack>
  );
}

function Nothing({ job }: { job: Job }) {
  return (
    <Empty title="No gradients recorded">
      {isFinished(job) ? "Set " : "Record the next step now, or set "}
      <code>training.capture_gradients_every_steps</code> in the spec to record them regularly.
    </Empty>
  );
}

function Top({ job, history }: { job: Job; history: GradientHistory }) {
  const capture = useCaptureGradients(job.id);
  const waiting = isWaiting(history);
  const last = history.steps.at(-1);
  return (
    <Group justify="space-between">
      <Text size="sm" c="dimmed" aria-live="polite">
        {waiting ? "Recording the next step…" : summary(history, last?.step)}
      </Text>
      {isFinished(job) ? null : (
        <Command
          label="Record gradients"
          refused={job.refused_commands.capture_gradients}
          busy={capture.isPending || (waiting && job.state === "running")}
          onClick={() => capture.mutate()}
        />
      )}
    </Group>
  );
}

function summary({ steps }: GradientHistory, last: number | undefined): string {
  if (last === undefined) return "";
  return `${plural(steps.length, "recorded step")}, latest ${count(last)}. Norms are of the gradient averaged over all ranks, before clipping.`;
}

function Norms({ job, history }: { job: Job; history: GradientHistory }) {
  const [order, setOrder] = useState<Order>("model");
  const [choice, setChosen] = useState<string | null>(null);
  const chosen = choice ?? history.names[0] ?? "";
  const parameter: Column<Row> = {
    id: "parameter",
    header: (
      <Group gap="sm" wrap="nowrap">
        Parameter
        <Select
          size="xs"
          w={150}
          aria-label="Order"
          data={Object.entries(ORDERS).map(([value, label]) => ({ value, label }))}
          value={order}
          allowDeselect={false}
          onChange={(next) => setOrder((next ?? "model") as Order)}
        />
      </Group>
    ),
    cell: ({ name }) => (
      <UnstyledButton
        className={classes.name}
        aria-pressed={name === chosen}
        onClick={() => setChosen(name)}
      >
        {name}
      </UnstyledButton>
    ),
  };
  return (
    <>
      <Histogram job={job} history={history} name={chosen} />
      <Table
        label="Gradients by parameter"
        columns={[parameter, ...COLUMNS]}
        rows={ordered(rowsOf(history), order)}
        rowKey={({ name }) => name}
        rowProps={({ name }) => ({ className: classes.row, "data-chosen": name === chosen })}
        virtual
      />
    </>
  );
}

const COLUMNS: Column<Row>[] = [
  { id: "norm", header: "Norm", right: true, cell: ({ norm }) => metric(norm) },
  { id: "largest", header: "Max over ranks", right: true, cell: ({ largest }) => metric(largest) },
  {
    id: "norms",
    header: "Norm over steps",
    cell: ({ name, norms }) => (
      <Sparkline values={magnitudes(norms)} label={`Norm of ${name} over steps`} />
    ),
  },
  {
    id: "remark",
    header: "Remark",
    hidden: true,
    cell: ({ remark }) =>
      remark ? (
        <Badge size="sm" variant="light" color={COLOURS[remark]} title={MEANING[remark]}>
          {remark}
        </Badge>
      ) : null,
  },
];

/** The histogram of a parameter in the newest step that has histograms. */
function Histogram({ job, history, name }: { job: Job; history: GradientHistory; name: string }) {
  const captured = history.steps.findLast((each) => each.has_histograms);
  const { data } = useGradientsOfStep(job.id, captured);
  const histogram = data?.entries.find((entry) => entry.name === name)?.histogram;
  if (captured === undefined) {
    if (isFinished(job)) return null;
    return (
      <Text size="sm" c="dimmed">
        Steps recorded with the button have histograms.
      </Text>
    );
  }
  return (
    <div className="app-card" style={{ padding: "var(--mantine-spacing-md)" }}>
      <Text size="sm" mb="xs">
        <span className={classes.name}>{name}</span> at step {count(data?.step ?? captured.step)}
      </Text>
      {data && histogram ? (
        <GradientHistogram
          name={name}
          histogram={histogram}
          lowestExponent={data.lowest_exponent}
        />
      ) : (
        <Skeleton height={120} />
      )}
    </div>
  );
}
