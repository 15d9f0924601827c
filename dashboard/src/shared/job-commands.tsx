import { ActionIcon, Button, Group, Tooltip } from "@mantine/core";
import { useCancelJob } from "./api/cancel-job";
import { usePauseJob } from "./api/pause-job";
import { useResumeJob } from "./api/resume-job";
import { canCancel, canPause, canResume, isFinal, type Job } from "./api/types";
import { Confirm } from "./ui/confirm";
import { AgainIcon, CancelIcon, PauseIcon, PlayIcon } from "./ui/icons";
import { ButtonLink, IconLink } from "./ui/links";

interface Props {
  job: Pick<Job, "id" | "name" | "state">;
  /** Icons alone, for a row of a table. */
  compact?: boolean;
}

/** What can be done with a job: of one that has ended, submit its spec again. */
export function JobCommands({ job, compact = false }: Props) {
  if (isFinal(job.state)) return <Again job={job} compact={compact} />;
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

/** Pause or resume, and cancel. What the state does not allow is disabled, so nothing jumps. */
function Running({ job, compact }: Required<Props>) {
  const pause = usePauseJob();
  const resume = useResumeJob();
  const cancel = useCancelJob();
  const busy = pause.isPending || resume.isPending || cancel.isPending;
  const resumes = canResume(job.state);
  return (
    <Group gap={compact ? 4 : "xs"} wrap="nowrap" justify="flex-end">
      {resumes ? (
        <Command
          label="Resume"
          name={job.name}
          icon={<PlayIcon />}
          compact={compact}
          disabled={busy}
          onClick={() => resume.mutate(job.id)}
        />
      ) : (
        <Command
          label="Pause"
          name={job.name}
          icon={<PauseIcon />}
          compact={compact}
          disabled={busy || !canPause(job.state)}
          onClick={() => pause.mutate(job.id)}
        />
      )}
      <Confirm
        title={`Cancel ${job.name}?`}
        text="Its ranks are stopped now and nothing is saved. Checkpoints that were committed stay. To stop with a checkpoint and go on later, pause it instead."
        action="Cancel the job"
        onConfirm={() => cancel.mutate(job.id)}
      >
        {(ask) => (
          <Command
            label="Cancel"
            name={job.name}
            icon={<CancelIcon />}
            compact={compact}
            danger
            disabled={busy || !canCancel(job.state)}
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
