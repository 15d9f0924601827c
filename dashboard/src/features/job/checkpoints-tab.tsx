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
import { type CheckpointChange, useChangeCheckpoint } from "./api/change-checkpoint";
import { useCheckpoints } from "./api/list-checkpoints";
import classes from "./checkpoints-tab.module.css";

const RESTORABLE = new Set(["paused", "completed", "failed", "cancelled"]);

/** What a state means, where its word does not say it. */
const MEANING: Partial<Record<Checkpoint["state"], string>> = {
  corrupt: "A file of it does not have its hash. It is passed over, and an older one is taken.",
  deleting: "It is given up. Its files go as soon as a host that holds them is heard.",
};

export function CheckpointsTab({ job }: { job: Job }) {
  const checkpoints = useCheckpoints(job.id);
  const change = useChangeCheckpoint(job.id);
  const [restoring, setRestoring] = useState<Checkpoint | null>(null);
  if (checkpoints.error && !checkpoints.data) {
    return (
      <Problem
        error={checkpoints.error}
        what="The checkpoints could not be read"
        onRetry={() => void checkpoints.refetch()}
      />
    );
  }
  if (!checkpoints.data) return <Skeleton height={160} />;
  if (checkpoints.data.length === 0) {
    return (
      <Empty title="No checkpoint yet">
        One is saved at every pause and at the end; <code>checkpoint.every_steps</code> in the spec
        asks for more.
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
                  {told(checkpoint.metrics)}
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
          onRestore={(otherwise) => {
            change.mutate({ kind: "restore", checkpoint: restoring, ...otherwise });
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
  const good = checkpoint.state === "committed";
  const idle = RESTORABLE.has(job.state);
  const why = idle ? "Restore" : "Pause or cancel the job to restore from here";
  return (
    <Group gap={4} wrap="nowrap" justify="flex-end">
      <Tooltip label={why}>
        <ActionIcon
          variant="subtle"
          color="gray"
          aria-label={`Restore from step ${step}`}
          disabled={busy || !good || !idle}
          onClick={onRestore}
        >
          <RestoreIcon />
        </ActionIcon>
      </Tooltip>
      <Tooltip label={checkpoint.pinned ? "Unpin" : "Pin: keep it, whatever retention says"}>
        <ActionIcon
          variant={checkpoint.pinned ? "light" : "subtle"}
          color={checkpoint.pinned ? "ink" : "gray"}
          aria-label={`Pin step ${step}`}
          aria-pressed={checkpoint.pinned}
          disabled={busy || !good}
          onClick={() => onChange({ kind: checkpoint.pinned ? "unpin" : "pin", checkpoint })}
        >
          <PinIcon />
        </ActionIcon>
      </Tooltip>
      <Confirm
        title={`Delete the checkpoint of step ${step}?`}
        text="Its files are removed and can't be brought back."
        action="Delete the checkpoint"
        onConfirm={() => onChange({ kind: "delete", checkpoint })}
      >
        {(ask) => (
          <Tooltip label={checkpoint.pinned ? "Unpin it to delete it" : "Delete"}>
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
  onRestore: (otherwise: { workers: number | null; strategy: string | null }) => void;
}

const STRATEGIES: NonNullable<ParallelismSpec["strategy"]>[] = [
  "ddp",
  "fsdp",
  "tensor",
  "pipeline",
  "model",
  "parameter_server",
];

function RestoreDialog({ job, checkpoint, onClose, onRestore }: RestoreProps) {
  const [workers, setWorkers] = useState<number | string>(job.world_size);
  const { strategy: before = "" } = (job.spec.parallelism ?? {}) as { strategy?: string };
  const [strategy, setStrategy] = useState(before);
  const chosen = typeof workers === "number" ? workers : Number.NaN;
  return (
    <Modal opened onClose={onClose} title={`Restore from step ${count(checkpoint.step)}`} centered>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onRestore({
            workers: chosen === job.world_size ? null : chosen,
            strategy: strategy === before ? null : strategy,
          });
        }}
      >
        <Text size="sm" mb="md">
          A new attempt of {job.name} starts from this checkpoint. Later steps are taken again and
          replace those of earlier attempts.
          {checkpoint.step >= (job.total_steps ?? Number.POSITIVE_INFINITY)
            ? " There are none: nothing is left to train."
            : null}
        </Text>
        <NumberInput
          label="Workers"
          description={`It had ${plural(job.world_size, "worker")}.`}
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
            description="Its checkpoints load into any of them."
            data={STRATEGIES}
            value={strategy}
            allowDeselect={false}
            onChange={(next) => setStrategy(next ?? before)}
          />
        ) : null}
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" disabled={!(chosen >= 1)}>
            Restore
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

/** How good the model was; how fast it was trained is told by the curves. */
function told(metrics: Checkpoint["metrics"]): string {
  return Object.entries(metrics)
    .filter(([name]) => !isAboutSpeed(name))
    .map(([name, value]) => `${name} ${metric(value)}`)
    .join(" · ");
}
