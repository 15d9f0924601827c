import { ActionIcon, Button, Group, Tooltip } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import {
  cancelJobMutation,
  pauseJobMutation,
  resumeJobMutation,
} from "@/client/@tanstack/react-query.gen";
import { useJobChange } from "./api/jobs";
import { isFinished, type Job } from "./api/types";
import { Confirm } from "./ui/confirm";
import { AgainIcon, CancelIcon, PauseIcon, PlayIcon } from "./ui/icons";
import { ButtonLink, IconLink } from "./ui/links";

interface Props {
  job: Pick<Job, "id" | "name" | "finished_at" | "allowed_commands">;
  /** Icons alone, for a row of a table. */
  compact?: boolean;
}

/** The commands for a job; a finished job can be submitted again. */
export function JobCommands({ job, compact = false }: Props) {
  if (isFinished(job)) return <Again job={job} compact={compact} />;
  return <Running job={job} compact={compact} />;
}

function Again({ job, compact }: Required<Props>) {
  const search = { from: job.id };
  if (!compact) {
    return (
      <ButtonLink size="xs" variant="default" leftSection={<AgainIcon />} to="/new" search={search}>
        Submit again
      </ButtonLink>
    );
  }
  return (
    <Group justify="flex-end">
      <Tooltip label="Submit again" openDelay={300}>
        <IconLink
          to="/new"
          search={search}
          variant="subtle"
          color="gray"
          size="md"
          aria-label={`Submit ${job.name} again`}
        >
          <AgainIcon />
        </IconLink>
      </Tooltip>
    </Group>
  );
}

/** Pause or resume, and cancel. Commands that are not allowed are disabled, so that nothing moves. */
function Running({ job, compact }: Required<Props>) {
  const pause = useMutation({
    ...pauseJobMutation(),
    ...useJobChange("The job could not be paused"),
  });
  const resume = useMutation({
    ...resumeJobMutation(),
    ...useJobChange("The job could not be resumed"),
  });
  const cancel = useMutation({
    ...cancelJobMutation(),
    ...useJobChange("The job could not be cancelled"),
  });
  const path = { job_id: job.id };
  const busy = pause.isPending || resume.isPending || cancel.isPending;
  const allowed = new Set(job.allowed_commands);
  const resumes = allowed.has("resume");
  return (
    <Group gap={compact ? 4 : "xs"} wrap="nowrap" justify="flex-end">
      {resumes ? (
        <Command
          label="Resume"
          name={job.name}
          icon={<PlayIcon />}
          compact={compact}
          disabled={busy}
          onClick={() => resume.mutate({ path })}
        />
      ) : (
        <Command
          label="Pause"
          name={job.name}
          icon={<PauseIcon />}
          compact={compact}
          disabled={busy || !allowed.has("pause")}
          onClick={() => pause.mutate({ path })}
        />
      )}
      <Confirm
        title={`Cancel ${job.name}?`}
        text="This stops all ranks now without saving. Saved checkpoints are kept. To save a checkpoint and continue later, pause the job instead."
        action="Cancel job"
        onConfirm={() => cancel.mutate({ path })}
      >
        {(ask) => (
          <Command
            label="Cancel"
            name={job.name}
            icon={<CancelIcon />}
            compact={compact}
            danger
            disabled={busy || !allowed.has("cancel")}
            onClick={ask}
          />
        )}
      </Confirm>
    </Group>
  );
}

interface CommandProps {
  label: string;
  name: string;
  icon: React.ReactNode;
  compact: boolean;
  danger?: boolean;
  disabled: boolean;
  onClick: () => void;
}

function Command({ label, name, icon, compact, danger, disabled, onClick }: CommandProps) {
  if (!compact) {
    return (
      <Button
        size="xs"
        variant="default"
        leftSection={icon}
        disabled={disabled}
        onClick={onClick}
        {...(danger && !disabled ? { c: "red" } : {})}
      >
        {label}
      </Button>
    );
  }
  return (
    <Tooltip label={label} openDelay={300}>
      <ActionIcon
        variant="subtle"
        color={danger ? "red" : "gray"}
        size="md"
        aria-label={`${label} ${name}`}
        disabled={disabled}
        onClick={onClick}
      >
        {icon}
      </ActionIcon>
    </Tooltip>
  );
}
