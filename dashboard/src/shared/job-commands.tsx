import { Group, Tooltip } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import {
  cancelJobMutation,
  pauseJobMutation,
  resumeJobMutation,
} from "@/client/@tanstack/react-query.gen";
import { useJobChange } from "./api/jobs";
import { isFinished, type Job } from "./api/types";
import { Command } from "./ui/command";
import { Confirm } from "./ui/confirm";
import { AgainIcon, CancelIcon, PauseIcon, PlayIcon } from "./ui/icons";
import { ButtonLink, IconLink } from "./ui/links";

interface Props {
  job: Pick<Job, "id" | "name" | "finished_at" | "allowed_commands" | "refused_commands">;
  /** Show icons alone, as in a row of a table. */
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

/** Pause or resume, and cancel. A command that is not possible stays in place, with the reason. */
function Running({ job, compact }: Required<Props>) {
  const pause = useMutation({ ...pauseJobMutation(), ...useJobChange("Could not pause the job") });
  const resume = useMutation({
    ...resumeJobMutation(),
    ...useJobChange("Could not resume the job"),
  });
  const cancel = useMutation({
    ...cancelJobMutation(),
    ...useJobChange("Could not cancel the job"),
  });
  const path = { job_id: job.id };
  const busy = pause.isPending || resume.isPending || cancel.isPending;
  const { refused_commands: refused } = job;
  const nameOf = (verb: string) => (compact ? `${verb} ${job.name}` : undefined);
  return (
    <Group gap={compact ? 4 : "xs"} wrap="nowrap" justify="flex-end">
      {job.allowed_commands.includes("resume") ? (
        <Command
          label="Resume"
          name={nameOf("Resume")}
          icon={<PlayIcon />}
          compact={compact}
          busy={busy}
          onClick={() => resume.mutate({ path })}
        />
      ) : (
        <Command
          label="Pause"
          name={nameOf("Pause")}
          icon={<PauseIcon />}
          compact={compact}
          busy={busy}
          refused={refused.pause}
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
            name={nameOf("Cancel")}
            icon={<CancelIcon />}
            compact={compact}
            danger
            busy={busy}
            refused={refused.cancel}
            onClick={ask}
          />
        )}
      </Confirm>
    </Group>
  );
}
