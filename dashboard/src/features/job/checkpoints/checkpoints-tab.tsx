import {
  ActionIcon,
  Button,
  Group,
  Modal,
  NumberInput,
  Select,
  Skeleton,
  Text,
  Tooltip,
} from "@mantine/core";
import { useState } from "react";
import type { ParallelismSpec } from "@/client";
import {
  type CheckpointChange,
  useChangeCheckpoint,
  useCheckpoints,
} from "@/features/job/api/checkpoints";
import type { Checkpoint, Job } from "@/shared/api/types";
import { bytes, count, metric, plural } from "@/shared/format";
import { isAboutSpeed } from "@/shared/live/metric-names";
import { Confirm } from "@/shared/ui/confirm";
import { Empty } from "@/shared/ui/empty";
import { PinIcon, RestoreIcon, TrashIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { Cell, ROW_CARDS } from "@/shared/ui/row-cards";
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
  if (checkpoints.error && !checkpoints.data) {
    return (
      <Problem
        error={checkpoints.error}
        what="Could not load the checkpoints"
        onRetry={() => void checkpoints.refetch()}
      />
    );
  }
  if (!checkpoints.data) return <Skeleton height={160} />;
  if (checkpoints.data.length === 0) {
    return (
      <Empty title="No checkpoints yet">
        A checkpoint is saved at every pause and at the end. Set <code>checkpoint.every_steps</code>{" "}
        in the spec to save more.
      </Empty>
    );
  }
  return (
    <div className="app-card">
      <table className={`app-table ${ROW_CARDS}`} aria-label="Checkpoints">
        <thead>
          <tr>
            <th scope="col" className="right">
              Step
            </th>
            <th scope="col">Saved</th>
            <th scope="col">State</th>
            <th scope="col" className="right">
              Size
            </th>
            <th scope="col" className="right">
              Attempt
            </th>
            <th scope="col">Metrics</th>
            <th scope="col">
              <span className="sr-only">Commands</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {checkpoints.data.map((checkpoint) => (
            <tr key={checkpoint.id} className={classes.row} data-state={checkpoint.state}>
              <Cell className="right" name="step">
                {count(checkpoint.step)}
              </Cell>
              <Cell name="saved">
                <Moment value={checkpoint.created_at} />
              </Cell>
              <Cell name="state">
                <Group gap={6} wrap="nowrap">
                  <StateBadge state={checkpoint.state} reason={MEANING[checkpoint.state]} />
                  {checkpoint.pinned ? (
                    <Text span size="xs" c="dimmed">
                      pinned
                    </Text>
                  ) : null}
                </Group>
              </Cell>
              <Cell className="right nowrap" name="size">
                {bytes(checkpoint.size)}
              </Cell>
              <Cell className="right" name="attempt">
                {checkpoint.attempt}
              </Cell>
              <Cell name="metrics">
                <Text size="xs" c="dimmed" className={`numbers ${classes.metrics}`}>
                  {metricsText(checkpoint.metrics)}
                </Text>
              </Cell>
              <Cell className={classes.commands} name="commands">
                <Commands
                  checkpoint={checkpoint}
                  job={job}
                  busy={change.isPending}
                  onChange={change.mutate}
                  onRestore={() => setRestoring(checkpoint)}
                />
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
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
    </div>
  );
}

interface CommandsProps {
  checkpoint: Checkpoint;
  job: Job;
  busy: boolean;
  onChange: (change: CheckpointChange) => void;
  onRestore: () => void;
}

function Commands({ checkpoint, job, busy, onChange, onRestore }: CommandsProps) {
  const step = count(checkpoint.step);
  const saved = checkpoint.state === "committed";
  const refused = job.refused_commands.restore;
  return (
    <Group gap={4} wrap="nowrap" justify="flex-end">
      <Tooltip label={refused ?? "Restore"}>
        <ActionIcon
          variant="subtle"
          color="gray"
          aria-label={`Restore from step ${step}`}
          disabled={busy || !saved || refused !== undefined}
          onClick={onRestore}
        >
          <RestoreIcon />
        </ActionIcon>
      </Tooltip>
      <Tooltip label={checkpoint.pinned ? "Unpin" : "Pin: exempt from retention"}>
        <ActionIcon
          variant={checkpoint.pinned ? "light" : "subtle"}
          color={checkpoint.pinned ? "ink" : "gray"}
          aria-label={`Pin step ${step}`}
          aria-pressed={checkpoint.pinned}
          disabled={busy || !saved}
          onClick={() => onChange({ kind: checkpoint.pinned ? "unpin" : "pin", checkpoint })}
        >
          <PinIcon />
        </ActionIcon>
      </Tooltip>
      <Confirm
        title={`Delete the checkpoint of step ${step}?`}
        text="Its files are removed. This cannot be undone."
        action="Delete the checkpoint"
        onConfirm={() => onChange({ kind: "delete", checkpoint })}
      >
        {(ask) => (
          <Tooltip label={checkpoint.pinned ? "Unpin it first" : "Delete"}>
            <ActionIcon
              variant="subtle"
              color="red"
              aria-label={`Delete step ${step}`}
              disabled={busy || checkpoint.pinned || checkpoint.state === "deleting"}
              onClick={ask}
            >
              <TrashIcon />
            </ActionIcon>
          </Tooltip>
        )}
      </Confirm>
    </Group>
  );
}

interface RestoreProps {
  job: Job;
  checkpoint: Checkpoint;
  onClose: () => void;
  onRestore: (changes: { workers: number | null; strategy: string | null }) => void;
}

type Strategy = Exclude<NonNullable<ParallelismSpec["strategy"]>, "auto">;

const STRATEGIES: Record<Strategy, string> = {
  ddp: "ddp: data parallel",
  fsdp: "fsdp: fully sharded data parallel",
  tensor: "tensor: tensor parallel",
  pipeline: "pipeline: pipeline parallel",
  model: "model: layers over devices, one batch at a time",
  parameter_server: "parameter_server",
};

function RestoreDialog({ job, checkpoint, onClose, onRestore }: RestoreProps) {
  const [workers, setWorkers] = useState<number | string>(job.world_size);
  const { strategy: before = "" } = (job.spec.parallelism ?? {}) as { strategy?: string };
  const [strategy, setStrategy] = useState(before);
  const chosenWorkers = typeof workers === "number" ? workers : Number.NaN;
  return (
    <Modal opened onClose={onClose} title={`Restore from step ${count(checkpoint.step)}`} centered>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onRestore({
            workers: chosenWorkers === job.world_size ? null : chosenWorkers,
            strategy: strategy === before ? null : strategy,
          });
        }}
      >
        <Text size="sm" mb="md">
          Starts a new attempt of {job.name} from this checkpoint. Later steps are repeated and
          replace those of earlier attempts.
          {checkpoint.step >= (job.total_steps ?? Number.POSITIVE_INFINITY)
            ? " No steps are left to train."
            : null}
        </Text>
        <NumberInput
          label="Workers"
          description={`Before: ${plural(job.world_size, "worker")}`}
          min={1}
          allowDecimal={false}
          value={workers}
          onChange={setWorkers}
          data-autofocus
        />
        {job.spec.task ? (
          <Select
            mt="sm"
            label="Strategy"
            description="Checkpoints load under any strategy."
            data={Object.entries(STRATEGIES).map(([value, label]) => ({ value, label }))}
            value={strategy}
            allowDeselect={false}
            onChange={(next) => setStrategy(next ?? before)}
          />
        ) : null}
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={onClose}>
            Go back
          </Button>
          <Button type="submit" disabled={!(chosenWorkers >= 1)}>
            Restore
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

/** The metrics of the model's quality, without those of speed. */
function metricsText(metrics: Checkpoint["metrics"]): string {
  return Object.entries(metrics)
    .filter(([name]) => !isAboutSpeed(name))
    .map(([name, value]) => `${name} ${metric(value)}`)
    .join(" · ");
}
