import { Group } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { linkOptions, useNavigate } from "@tanstack/react-router";
import {
  cancelJobMutation,
  changeJobMutation,
  deleteJobMutation,
  pauseJobMutation,
  resumeJobMutation,
} from "@/client/@tanstack/react-query.gen";
import { useJobChange } from "./api/jobs";
import { useRights } from "./api/rights";
import { isFinished, isRun, type Job } from "./api/types";
import { ConfirmedCommand } from "./dialogs/confirm";
import { RowLink } from "./table/row-link";
import { Command } from "./ui/command";
import icons from "./ui/icon.module.css";
import { AgainIcon, ArchiveIcon, CancelIcon, PauseIcon, PlayIcon, TrashIcon } from "./ui/icons";
import { ButtonLink } from "./ui/links";
import { notifyDone, notifyProblem } from "./ui/notify";
import { Refusable } from "./ui/refusable";

interface Props {
  job: Pick<Job, "id" | "name" | "kind" | "finished_at" | "allowed_commands" | "refused_commands">;
  /** Show icons alone, as in a row of a table. */
  compact?: boolean;
}

/** The commands for a job; a finished job can be submitted again, and on its page put away. */
export function JobCommands({ job, compact = false }: Props) {
  if (!isFinished(job)) return <Running job={job} compact={compact} />;
  return (
    <>
      {isRun(job) ? null : <Again job={job} compact={compact} />}
      {compact ? null : <PutAway job={job} />}
    </>
  );
}

function Again({ job, compact }: Required<Props>) {
  const { submit } = useRights();
  const search = { from: job.id };
  if (!compact) {
    return (
      <Refusable refused={submit} label="Submit again" icon={<AgainIcon />}>
        <ButtonLink
          size="xs"
          variant="default"
          leftSection={<AgainIcon />}
          to="/new"
          search={search}
        >
          Submit again
        </ButtonLink>
      </Refusable>
    );
  }
  return (
    <div className={icons.icons}>
      <RowLink
        link={linkOptions({ to: "/new", search })}
        className={icons.icon}
        title="Submit again"
        aria-label={`Submit ${job.name} again`}
      >
        <AgainIcon />
      </RowLink>
    </div>
  );
}

/** Archive, and delete for good. */
function PutAway({ job }: Pick<Props, "job">) {
  const navigate = useNavigate();
  const archives = !job.allowed_commands.includes("unarchive");
  const label = archives ? "Archive" : "Unarchive";
  const change = useMutation({
    ...changeJobMutation(),
    ...useJobChange(`Could not ${label.toLowerCase()} the job`),
  });
  const remove = useMutation({
    ...deleteJobMutation(),
    onSuccess: () => {
      notifyDone(`${job.name} deleted`);
      return navigate({ to: "/jobs" });
    },
    onError: (error) => notifyProblem("Could not delete the job", error),
  });
  const path = { job_id: job.id };
  const busy = change.isPending || remove.isPending;
  return (
    <>
      <Command
        label={label}
        icon={<ArchiveIcon />}
        busy={busy}
        refused={job.refused_commands[archives ? "archive" : "unarchive"]}
        onClick={() => change.mutate({ path, body: { archived: archives } })}
      />
      <ConfirmedCommand
        label="Delete"
        icon={<TrashIcon />}
        busy={busy}
        refused={job.refused_commands.delete}
        title={`Delete ${job.name} for good?`}
        text="Its events, metrics, logs and checkpoints go with it, and there is no way back. To hide it from lists and keep everything, archive it instead."
        action="Delete job"
        onConfirm={() => remove.mutate({ path })}
      />
    </>
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
      <ConfirmedCommand
        label="Cancel"
        name={nameOf("Cancel")}
        icon={<CancelIcon />}
        compact={compact}
        busy={busy}
        refused={refused.cancel}
        title={`Cancel ${job.name}?`}
        text="This stops all ranks now without saving. Saved checkpoints are kept. To save a checkpoint and continue later, pause the job instead."
        action="Cancel job"
        onConfirm={() => cancel.mutate({ path })}
      />
    </Group>
  );
}
