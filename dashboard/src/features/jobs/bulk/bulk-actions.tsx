import { Button, Group, Modal, Stack, TagsInput, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelJob, changeJob, deleteJob, pauseJob, resumeJob } from "@/client";
import { JOBS_ON_SCREEN } from "@/shared/api/jobs";
import type { Job } from "@/shared/api/types";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { Dialog } from "@/shared/dialogs/dialog";
import { count, plural } from "@/shared/format";
import { Command } from "@/shared/ui/command";
import { ArchiveIcon, CancelIcon, PauseIcon, PlayIcon, TrashIcon } from "@/shared/ui/icons";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { notifyDone } from "@/shared/ui/notify";
import { forEachJob, type Outcome } from "./for-each-job";

interface Action {
  /** As in "3 jobs paused". */
  done: string;
  /** The jobs leave the list, and the selection. */
  leave?: boolean;
  send: (id: string) => Promise<unknown>;
}

const PAUSE: Action = { done: "paused", send: (id) => pauseJob({ path: { job_id: id } }) };
const RESUME: Action = { done: "resumed", send: (id) => resumeJob({ path: { job_id: id } }) };
const CANCEL: Action = { done: "cancelled", send: (id) => cancelJob({ path: { job_id: id } }) };
const DELETE: Action = {
  done: "deleted",
  leave: true,
  send: (id) => deleteJob({ path: { job_id: id } }),
};

function archiving(archived: boolean): Action {
  const send = (id: string) => changeJob({ path: { job_id: id }, body: { archived } });
  return { done: archived ? "archived" : "unarchived", leave: true, send };
}

function tagging(add: string[], remove: string[]): Action {
  const body = { add_tags: add, remove_tags: remove };
  return { done: "tagged", send: (id) => changeJob({ path: { job_id: id }, body }) };
}

interface Props {
  /** Ids of the selected jobs. */
  selected: string[];
  /** The jobs that are listed, for their names. */
  jobs: readonly Job[];
  onSelect: (selected: string[]) => void;
}

/** The commands for the selected jobs; those that refuse are listed with their reasons. */
export function BulkActions({ selected, jobs, onSelect }: Props) {
  const client = useQueryClient();
  const [isTagging, setTagging] = useState(false);
  const [report, setReport] = useState<(Outcome & { action: string }) | null>(null);
  const run = useMutation({
    mutationFn: async ({ send }: Action) => forEachJob(selected, send),
    onSuccess: async (outcome, { done, leave }) => {
      setTagging(false);
      if (leave) onSelect(outcome.refused.map(({ id }) => id));
      if (outcome.refused.length > 0) setReport({ ...outcome, action: done });
      else notifyDone(`${plural(outcome.done.length, "job")} ${done}`);
      await client.invalidateQueries({ queryKey: JOBS_ON_SCREEN });
    },
  });
  const busy = run.isPending;
  const jobsText = plural(selected.length, "job");
  const archives = !jobs.some(({ id, archived }) => archived && selected.includes(id));
  return (
    <section aria-label="Selected jobs">
      <Group gap="xs">
        <Text size="sm" fw={600}>
          {count(selected.length)} selected
        </Text>
        <Command
          label="Pause"
          name={`Pause ${jobsText}`}
          icon={<PauseIcon />}
          busy={busy}
          onClick={() => run.mutate(PAUSE)}
        />
        <Command
          label="Resume"
          name={`Resume ${jobsText}`}
          icon={<PlayIcon />}
          busy={busy}
          onClick={() => run.mutate(RESUME)}
        />
        <ConfirmedCommand
          label="Cancel"
          name={`Cancel ${jobsText}…`}
          icon={<CancelIcon />}
          busy={busy}
          title={`Cancel ${jobsText}?`}
          text="This stops all their ranks now without saving. Saved checkpoints are kept. To save a checkpoint and continue later, pause the jobs instead."
          action={`Cancel ${jobsText}`}
          onConfirm={() => run.mutate(CANCEL)}
        />
        <Command
          label="Tag"
          name={`Tag ${jobsText}`}
          busy={busy}
          onClick={() => setTagging(true)}
        />
        <Command
          label={archives ? "Archive" : "Unarchive"}
          name={`${archives ? "Archive" : "Unarchive"} ${jobsText}`}
          icon={<ArchiveIcon />}
          busy={busy}
          onClick={() => run.mutate(archiving(archives))}
        />
        <ConfirmedCommand
          label="Delete"
          name={`Delete ${jobsText}…`}
          icon={<TrashIcon />}
          busy={busy}
          title={`Delete ${jobsText} for good?`}
          text="Their events, metrics, logs and checkpoints go with them, and there is no way back. To hide jobs from lists and keep everything, archive them instead."
          action={`Delete ${jobsText}`}
          onConfirm={() => run.mutate(DELETE)}
        />
        <ButtonLink to="/compare" search={{ jobs: selected.join() }} size="xs" variant="default">
          Compare {count(selected.length)}
        </ButtonLink>
        <Button size="xs" variant="subtle" color="gray" onClick={() => onSelect([])}>
          Clear
        </Button>
      </Group>
      {isTagging ? (
        <TagDialog
          title={`Tag ${jobsText}`}
          busy={busy}
          onClose={() => setTagging(false)}
          onSubmit={(add, remove) => run.mutate(tagging(add, remove))}
        />
      ) : null}
      {report ? <Report report={report} jobs={jobs} onClose={() => setReport(null)} /> : null}
    </section>
  );
}

interface TagDialogProps {
  title: string;
  busy: boolean;
  onClose: () => void;
  onSubmit: (add: string[], remove: string[]) => void;
}

function TagDialog({ title, busy, onClose, onSubmit }: TagDialogProps) {
  const [add, setAdd] = useState<string[]>([]);
  const [remove, setRemove] = useState<string[]>([]);
  return (
    <Dialog
      title={title}
      action="Save tags"
      busy={busy}
      disabled={add.length + remove.length === 0}
      onClose={onClose}
      onSubmit={() => onSubmit(add, remove)}
    >
      <TagsInput
        label="Tags to add"
        value={add}
        onChange={setAdd}
        acceptValueOnBlur
        data-autofocus
      />
      <TagsInput label="Tags to remove" value={remove} onChange={setRemove} acceptValueOnBlur />
    </Dialog>
  );
}

interface ReportProps {
  report: Outcome & { action: string };
  jobs: readonly Job[];
  onClose: () => void;
}

function Report({ report: { action, done, refused }, jobs, onClose }: ReportProps) {
  const names = new Map(jobs.map(({ id, name }) => [id, name]));
  return (
    <Modal
      opened
      onClose={onClose}
      title={`${count(done.length)} of ${plural(done.length + refused.length, "job")} ${action}`}
      centered
    >
      <Stack gap="sm">
        <Text size="sm">{plural(refused.length, "job")} refused:</Text>
        <ul aria-label="Refused jobs" style={{ margin: 0, paddingLeft: "1.2em" }}>
          {refused.map(({ id, why }) => (
            <li key={id}>
              <AnchorLink to="/jobs/$jobId" params={{ jobId: id }} size="sm" fw={600}>
                {names.get(id) ?? id}
              </AnchorLink>
              <Text size="xs" c="dimmed">
                {why}
              </Text>
            </li>
          ))}
        </ul>
      </Stack>
    </Modal>
  );
}
