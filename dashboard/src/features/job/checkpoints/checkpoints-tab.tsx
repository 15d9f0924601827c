import { Group, NumberInput, Select, Text } from "@mantine/core";
import { useState } from "react";
import type { ParallelismSpec } from "@/client";
import {
  type CheckpointChange,
  useChangeCheckpoint,
  useCheckpoints,
} from "@/features/job/api/checkpoints";
import { type Checkpoint, isFinished, type Job } from "@/shared/api/types";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { Dialog } from "@/shared/dialogs/dialog";
import { bytes, count, metric, plural, timeZone } from "@/shared/format";
import { isAboutSpeed } from "@/shared/live/metric-names";
import { IdText } from "@/shared/page/id-text";
import { type Column, Table } from "@/shared/table/table";
import { Command } from "@/shared/ui/command";
import { Empty } from "@/shared/ui/empty";
import { PinIcon, RestoreIcon, TrashIcon } from "@/shared/ui/icons";
import { Pending } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { Moment } from "@/shared/ui/time";
import classes from "./checkpoints-tab.module.css";

/** Explanations of states. */
const MEANING: Partial<Record<Checkpoint["state"], string>> = {
  corrupt: "A file does not match its hash. The job resumes from an older checkpoint instead.",
  deleting: "Its files are removed once a node that holds them is connected.",
};

export function CheckpointsTab({ job }: { job: Job }) {
  const checkpoints = useCheckpoints(job.id);
  const change = useChangeCheckpoint(job.id);
  const [restoring, setRestoring] = useState<Checkpoint | null>(null);
  if (!checkpoints.data) return <Pending query={checkpoints} what="the checkpoints" />;
  if (checkpoints.data.length === 0) return <NoCheckpoints job={job} />;
  const columns: Column<Checkpoint>[] = [
    ...columnsIn(timeZone()),
    {
      id: "commands",
      header: "Commands",
      hidden: true,
      className: classes.commands,
      cell: (checkpoint) => (
        <Commands
          checkpoint={checkpoint}
          job={job}
          busy={change.isPending}
          onChange={change.mutate}
          onRestore={() => setRestoring(checkpoint)}
        />
      ),
    },
  ];
  return (
    <>
      <Table
        label="Checkpoints"
        columns={columns}
        rows={checkpoints.data}
        rowKey={({ id }) => id}
        rowProps={({ state }) => ({ "data-state": state })}
        className={classes.table}
        cards
      />
      {restoring ? (
        <RestoreDialog
          job={job}
          checkpoint={restoring}
          onClose={() => setRestoring(null)}
          onRestore={(changes) => {
            change.mutate({ kind: "restore", checkpoint: restoring, ...changes });
            setRestoring(null);
          }}
        />
      ) : null}
    </>
  );
}

function NoCheckpoints({ job }: { job: Job }) {
  return (
    <Empty title={isFinished(job) ? "No checkpoints" : "No checkpoints yet"}>
      {job.spec?.script ? (
        <>
          A script saves checkpoints with <code>trainhall.checkpoint.save</code>.
        </>
      ) : (
        <>
          A checkpoint is saved at every pause and at the end. Set{" "}
          <code>checkpoint.every_steps</code> in the spec to save more.
        </>
      )}
    </Empty>
  );
}

const columnsIn = (zone: string): Column<Checkpoint>[] => [
  { id: "step", header: "Step", right: true, cell: ({ step }) => count(step) },
  {
    id: "saved",
    header: `Saved (${zone})`,
    cell: ({ id, created_at }) => (
      <>
        <Moment value={created_at} zone={zone} />
        <IdText id={id} />
      </>
    ),
  },
  {
    id: "state",
    header: "State",
    cell: ({ state, pinned }) => (
      <Group gap={6} wrap="nowrap">
        <StateBadge state={state} reason={MEANING[state]} />
        {pinned ? (
          <Text span size="xs" c="dimmed">
            pinned
          </Text>
        ) : null}
      </Group>
    ),
  },
  {
    id: "size",
    header: "Size",
    right: true,
    className: "nowrap",
    cell: ({ size }) => bytes(size),
  },
  { id: "attempt", header: "Attempt", right: true, cell: ({ attempt }) => attempt },
  {
    id: "metrics",
    header: "Metrics",
    className: classes.metrics,
    cell: ({ metrics }) => (
      <Text size="xs" c="dimmed" className="numbers">
        {metricsText(metrics)}
      </Text>
    ),
  },
];

interface CommandsProps {
  checkpoint: Checkpoint;
  job: Job;
  busy: boolean;
  onChange: (change: CheckpointChange) => void;
  onRestore: () => void;
}

function Commands({ checkpoint, job, busy, onChange, onRestore }: CommandsProps) {
  const step = count(checkpoint.step);
  const { refused_commands: refused, pinned } = checkpoint;
  const pin = pinned ? "unpin" : "pin";
  return (
    <Group gap={4} wrap="nowrap" justify="flex-end">
      <Command
        compact
        label="Restore"
        name={`Restore from step ${step}`}
        icon={<RestoreIcon />}
        busy={busy}
        refused={job.refused_commands.restore ?? refused.restore}
        onClick={onRestore}
      />
      <Command
        compact
        label={pinned ? "Unpin" : "Pin: exempt from retention"}
        name={`Pin step ${step}`}
        icon={<PinIcon />}
        pressed={pinned}
        busy={busy}
        refused={refused[pin]}
        onClick={() => onChange({ kind: pin, checkpoint })}
      />
      <ConfirmedCommand
        compact
        label="Delete"
        name={`Delete step ${step}`}
        icon={<TrashIcon />}
        busy={busy}
        refused={refused.delete}
        title={`Delete the checkpoint of step ${step}?`}
        text="Its files are removed. This cannot be undone."
        action="Delete the checkpoint"
        onConfirm={() => onChange({ kind: "delete", checkpoint })}
      />
    </Group>
  );
}

interface RestoreProps {
  job: Job;
  checkpoint: Checkpoint;
  onClose: () => void;
  onRestore: (changes: { workers: number | null; strategy: string | null }) => void;
}

type Strategy = NonNullable<ParallelismSpec["strategy"]>;

const STRATEGIES: Record<Strategy, string> = {
  ddp: "ddp: data parallel",
  fsdp: "fsdp: fully sharded data parallel",
  tensor: "tensor: tensor parallel",
  pipeline: "pipeline: pipeline parallel",
  model: "model: layers over devices, one batch at a time",
  parameter_server: "parameter_server: servers hold weights and optimizer",
  auto: "auto: the fastest that fits",
};

function RestoreDialog({ job, checkpoint, onClose, onRestore }: RestoreProps) {
  const [workers, setWorkers] = useState<number | string>(job.world_size);
  const { strategy: before = "" } = (job.spec?.parallelism ?? {}) as { strategy?: string };
  const [strategy, setStrategy] = useState(before);
  const chosenWorkers = typeof workers === "number" ? workers : Number.NaN;
  return (
    <Dialog
      title={`Restore from step ${count(checkpoint.step)}`}
      action="Restore"
      disabled={!(chosenWorkers >= 1)}
      onClose={onClose}
      onSubmit={() =>
        onRestore({
          workers: chosenWorkers === job.world_size ? null : chosenWorkers,
          strategy: strategy === before ? null : strategy,
        })
      }
    >
      <Text size="sm">
        Starts a new attempt of {job.name} from this checkpoint. Later steps are repeated and
        replace those of earlier attempts.
        {checkpoint.step >= (job.total_steps ?? Number.POSITIVE_INFINITY)
          ? " No steps are left to train."
          : null}
      </Text>
      <NumberInput
        label="Workers"
        description={`Now: ${plural(job.world_size, "worker")}`}
        min={1}
        allowDecimal={false}
        value={workers}
        onChange={setWorkers}
        data-autofocus
      />
      {job.spec?.task ? (
        <Select
          label="Strategy"
          description="Checkpoints load under any strategy."
          data={Object.entries(STRATEGIES).map(([value, label]) => ({ value, label }))}
          value={strategy}
          allowDeselect={false}
          onChange={(next) => setStrategy(next ?? before)}
        />
      ) : null}
    </Dialog>
  );
}

/** The metrics of the model's quality, without those of speed. */
function metricsText(metrics: Checkpoint["metrics"]): string {
  return Object.entries(metrics)
    .filter(([name]) => !isAboutSpeed(name))
    .map(([name, value]) => `${name} ${metric(value)}`)
    .join(" · ");
}
