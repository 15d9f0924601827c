import { Badge, Button, Group, Select, Skeleton, Stack, Text, UnstyledButton } from "@mantine/core";
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
import { Empty } from "@/shared/ui/empty";
import { Problem } from "@/shared/ui/problem";
import { GradientHistogram } from "./gradient-histogram";
import { magnitudes, ORDERS, type Order, ordered, type Row, rowsOf } from "./gradients";
import classes from "./gradients-tab.module.css";

const MAX_ROWS = 100;

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
  if (gradients.error && !history) {
    return (
      <Problem
        error={gradients.error}
        what="Could not load the gradients"
        onRetry={() => void gradients.refetch()}
      />
    );
  }
  if (!history) return <Skeleton height={160} />;
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
      <Button
        size="xs"
        variant="default"
        disabled={!job.allowed_commands.includes("capture_gradients")}
        loading={capture.isPending || (waiting && job.state === "running")}
        onClick={() => capture.mutate()}
      >
        Record gradients
      </Button>
    </Group>
  );
}

function summary({ steps }: GradientHistory, last: number | undefined): string {
  if (last === undefined) return "";
  return `${plural(steps.length, "recorded step")}, latest ${count(last)}. Norms are of the gradient averaged over all ranks, before clipping.`;
}

function Norms({ job, history }: { job: Job; history: GradientHistory }) {
  const [order, setOrder] = useState<Order>("model");
  const [all, setAll] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  const rows = ordered(rowsOf(history), order);
  const shown = all ? rows : rows.slice(0, MAX_ROWS);
  return (
    <>
      <Histogram job={job} history={history} name={chosen ?? history.names[0] ?? ""} />
      <div className="app-card">
        <table className="app-table" aria-label="Gradients by parameter">
          <thead>
            <tr>
              <th scope="col">
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
              </th>
              <th scope="col" className="right">
                Norm
              </th>
              <th scope="col" className="right">
                Max over ranks
              </th>
              <th scope="col">Norm over steps</th>
              <th scope="col">
                <span className="sr-only">Remark</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <NormRow
                key={row.name}
                row={row}
                chosen={row.name === (chosen ?? history.names[0])}
                onChoose={() => setChosen(row.name)}
              />
            ))}
          </tbody>
        </table>
      </div>
      {shown.length < rows.length ? (
        <Button variant="subtle" size="xs" onClick={() => setAll(true)}>
          Show all {count(rows.length)}
        </Button>
      ) : null}
    </>
  );
}

interface RowProps {
  row: Row;
  chosen: boolean;
  onChoose: () => void;
}

function NormRow({ row, chosen, onChoose }: RowProps) {
  return (
    <tr className={classes.row} data-chosen={chosen}>
      <td>
        <UnstyledButton className={classes.name} aria-pressed={chosen} onClick={onChoose}>
          {row.name}
        </UnstyledButton>
      </td>
      <td className="right">{metric(row.norm)}</td>
      <td className="right">{metric(row.largest)}</td>
      <td>
        <Sparkline values={magnitudes(row.norms)} label={`Norm of ${row.name} over steps`} />
      </td>
      <td>
        {row.remark ? (
          <Badge size="sm" variant="light" color={COLOURS[row.remark]} title={MEANING[row.remark]}>
            {row.remark}
          </Badge>
        ) : null}
      </td>
    </tr>
  );
}

/** The histogram of a parameter in the newest step that has histograms. */
function Histogram({ job, history, name }: { job: Job; history: GradientHistory; name: string }) {
  const captured = history.steps.findLast((each) => each.has_histograms);
  const { data } = useGradientsOfStep(job.id, captured);
  const histogram = data?.entries.find((entry) => entry.name === name)?.histogram;
  if (captured === undefined) {
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
