import { Badge, Button, Group, Select, Skeleton, Stack, Text, UnstyledButton } from "@mantine/core";
import { useState } from "react";
import { type GradientHistory, isFinal, type Job, type Remark } from "@/shared/api/types";
import { Sparkline } from "@/shared/curves/sparkline";
import { count, metric, plural } from "@/shared/format";
import { Empty } from "@/shared/ui/empty";
import { Problem } from "@/shared/ui/problem";
import { isWaiting, useCaptureGradients, useGradients, useGradientsOfStep } from "./api/gradients";
import { GradientHistogram } from "./gradient-histogram";
import { magnitudes, ORDERS, type Order, ordered, type Row, rowsOf } from "./gradients";
import classes from "./gradients-tab.module.css";

const SHOWN_ROWS = 100;

const COLOURS: Record<Remark, string> = {
  "not finite": "red",
  exploding: "red",
  dead: "orange",
  vanishing: "orange",
};

const MEANING: Record<Remark, string> = {
  "not finite": "It holds NaN or infinity.",
  exploding: "More than ten times its median so far.",
  dead: "Zero: nothing of the loss reaches it.",
  vanishing: "Less than a millionth of the largest of this step.",
};

export function GradientsTab({ job }: { job: Job }) {
  const gradients = useGradients(job);
  const { data: history } = gradients;
  if (gradients.error && !history) {
    return (
      <Problem
        error={gradients.error}
        what="The gradients could not be read"
        onRetry={() => void gradients.refetch()}
      />
    );
  }
  if (!history) return <Skeleton height={160} />;
  if (job.spec.script) {
    return (
      <Empty title="A script computes its gradients by itself">
        Only those of a task are captured. In a script, <code>Trainer.watch_gradients</code> tells
        them.
      </Empty>
    );
  }
  return (
    <Stack gap="sm">
      <Top job={job} history={history} />
      {history.steps.length > 0 ? <Norms job={job} history={history} /> : <Nothing job={job} />}
    </Stack>
  );
}

function Nothing({ job }: { job: Job }) {
  return (
    <Empty title="No gradients were captured">
      {isFinal(job.state) ? "" : "Capture those of the next step, or have "}
      <code>training.capture_gradients_every_steps</code>{" "}
      {isFinal(job.state) ? "in the spec captures them as the job runs." : "in a spec do it."}
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
        {waiting ? "The next step of the job is captured …" : told(history, last?.step)}
      </Text>
      <Button
        size="xs"
        variant="default"
        disabled={isFinal(job.state)}
        loading={capture.isPending || (waiting && job.state === "running")}
        onClick={() => capture.mutate()}
      >
        Capture the next step
      </Button>
    </Group>
  );
}

function told({ steps }: GradientHistory, last: number | undefined): string {
  if (last === undefined) return "";
  return `${plural(steps.length, "captured step")}, the newest is ${count(last)}. Norms are those of the gradient averaged over all ranks, before clipping.`;
}

function Norms({ job, history }: { job: Job; history: GradientHistory }) {
  const [order, setOrder] = useState<Order>("model");
  const [all, setAll] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  const rows = ordered(rowsOf(history), order);
  const shown = all ? rows : rows.slice(0, SHOWN_ROWS);
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
                Largest of a rank
              </th>
              <th scope="col">Over steps</th>
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

/** Of the newest step whose histograms are kept. */
function Histogram({ job, history, name }: { job: Job; history: GradientHistory; name: string }) {
  const captured = history.steps.findLast((each) => each.has_histograms);
  const { data } = useGradientsOfStep(job.id, captured);
  const histogram = data?.entries.find((entry) => entry.name === name)?.histogram;
  if (captured === undefined) {
    return (
      <Text size="sm" c="dimmed">
        A step that is captured by the button comes with histograms.
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
