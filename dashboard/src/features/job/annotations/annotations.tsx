import { Button, Group, TagsInput, Textarea } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { changeJobMutation } from "@/client/@tanstack/react-query.gen";
import { useJobChanged } from "@/shared/api/jobs";
import { useRights } from "@/shared/api/rights";
import type { Job } from "@/shared/api/types";
import { Dialog } from "@/shared/dialogs/dialog";
import { lazyComponent } from "@/shared/page/lazy-component";
import { Tags } from "@/shared/page/tags";
import { Problem } from "@/shared/ui/problem";
import classes from "./annotations.module.css";

// Split off: few jobs have notes.
const Markdown = lazyComponent(() => import("@/shared/ui/markdown"), "the notes");

const MAX_TAGS = 32;

/** The tags and notes of a job, which any member of its project may change. */
export function Annotations({ job }: { job: Job }) {
  const refused = useRights().inProject(job.project, "member");
  const [editing, setEditing] = useState<"tags" | "notes" | null>(null);
  const close = () => setEditing(null);
  return (
    <>
      <Group gap="xs" mt={8}>
        <Tags tags={job.tags} />
        {refused === null ? (
          <Edit
            label={job.tags.length > 0 ? "Edit tags" : "Add tags"}
            on={() => setEditing("tags")}
          />
        ) : null}
        {refused === null && job.notes === "" ? (
          <Edit label="Add notes" on={() => setEditing("notes")} />
        ) : null}
      </Group>
      {job.notes === "" ? null : (
        <section className={`app-card ${classes.notes}`} aria-label="Notes">
          <Markdown text={job.notes} />
          {refused === null ? <Edit label="Edit notes" on={() => setEditing("notes")} /> : null}
        </section>
      )}
      {editing === "tags" ? <TagsDialog job={job} onClose={close} /> : null}
      {editing === "notes" ? <NotesDialog job={job} onClose={close} /> : null}
    </>
  );
}

function Edit({ label, on }: { label: string; on: () => void }) {
  return (
    <Button size="compact-xs" variant="subtle" color="gray" onClick={on}>
      {label}
    </Button>
  );
}

interface DialogProps {
  job: Job;
  onClose: () => void;
}

function TagsDialog({ job, onClose }: DialogProps) {
  const [tags, setTags] = useState(job.tags);
  const change = useMutation({ ...changeJobMutation(), onSuccess: useJobChanged() });
  return (
    <Dialog
      title={`Tags of ${job.name}`}
      action="Save tags"
      busy={change.isPending}
      onClose={onClose}
      onSubmit={() =>
        change.mutate(
          // What others added meanwhile stays.
          {
            path: { job_id: job.id },
            body: {
              add_tags: tags.filter((tag) => !job.tags.includes(tag)),
              remove_tags: job.tags.filter((tag) => !tags.includes(tag)),
            },
          },
          { onSuccess: onClose },
        )
      }
    >
      <TagsInput
        label="Tags"
        description="Enter or a comma ends a tag."
        value={tags}
        onChange={setTags}
        maxTags={MAX_TAGS}
        acceptValueOnBlur
        data-autofocus
      />
      {change.error ? <Problem error={change.error} what="Could not change the tags" /> : null}
    </Dialog>
  );
}

function NotesDialog({ job, onClose }: DialogProps) {
  const [notes, setNotes] = useState(job.notes);
  const change = useMutation({ ...changeJobMutation(), onSuccess: useJobChanged() });
  return (
    <Dialog
      title={`Notes on ${job.name}`}
      action="Save notes"
      busy={change.isPending}
      onClose={onClose}
      onSubmit={() =>
        change.mutate({ path: { job_id: job.id }, body: { notes } }, { onSuccess: onClose })
      }
    >
      <Textarea
        label="Notes"
        description="Markdown"
        value={notes}
        onChange={(event) => setNotes(event.currentTarget.value)}
        rows={12}
        data-autofocus
      />
      {change.error ? <Problem error={change.error} what="Could not change the notes" /> : null}
    </Dialog>
  );
}
