import { Group, NumberInput, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { resizeJobMutation } from "@/client/@tanstack/react-query.gen";
import { useJobChanged } from "@/shared/api/jobs";
import type { Job } from "@/shared/api/types";
import { Dialog } from "@/shared/dialogs/dialog";
import { plural } from "@/shared/format";
import { Command } from "@/shared/ui/command";
import { ResizeIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { isRange, rangeText, requestedWorkers, resizeRequest, type WorkerRange } from "./workers";

const INTEGER = { min: 1, allowDecimal: false };

/** Changes a job's number of workers, or shows why that is not possible. */
export function ResizeButton({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  const why = job.refused_commands.resize;
  return (
    <>
      <Command label="Resize" icon={<ResizeIcon />} refused={why} onClick={() => setOpen(true)} />
      {open && why === undefined ? <ResizeDialog job={job} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function ResizeDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const before = requestedWorkers(job);
  const [chosenMin, setMin] = useState<number | string | null>(null);
  const [max, setMax] = useState<number | string>(before.max);
  // Until it is chosen, min follows a lower max, so that one field is enough to shrink a job.
  const min = chosenMin ?? (typeof max === "number" ? Math.min(before.min, max) : before.min);
  const resize = useMutation({ ...resizeJobMutation(), onSuccess: useJobChanged() });
  const range = { min, max };
  const changes = min !== before.min || max !== before.max;
  return (
    <Dialog
      title={`Resize ${job.name}`}
      action="Resize job"
      busy={resize.isPending}
      disabled={!isRange(range) || !changes}
      onClose={onClose}
      onSubmit={() => {
        if (!isRange(range)) return;
        resize.mutate(
          { path: { job_id: job.id }, body: resizeRequest(range) },
          { onSuccess: onClose },
        );
      }}
    >
      <Text size="sm">
        {current(job, before)} {effect(job)}
      </Text>
      <Group grow align="flex-start">
        <NumberInput
          {...INTEGER}
          label="Min workers"
          value={min}
          onChange={setMin}
          data-autofocus
        />
        <NumberInput {...INTEGER} label="Max workers" value={max} onChange={setMax} />
      </Group>
      <Text size="xs" c="dimmed">
        {explanation(range)}
      </Text>
      {resize.error ? <Problem error={resize.error} what="Could not resize the job" /> : null}
    </Dialog>
  );
}

/** The meaning of a range, or what is wrong with it. */
function explanation(range: WorkerRange<number | string>): string {
  if (!isRange(range)) return "Min workers must be at least 1 and not above max workers.";
  return range.min < range.max
    ? "Elastic: runs with as many workers as are available in this range."
    : "Fixed. Two different numbers make the job elastic.";
}

function hasRanks(job: Job): boolean {
  return job.state !== "queued" && job.state !== "paused" && job.state !== "recovering";
}

function current(job: Job, before: WorkerRange): string {
  const workers = plural(job.world_size, "worker");
  if (!hasRanks(job)) return `The job requests ${rangeText(before)}.`;
  if (rangeText(before) === workers) return `The job has ${workers}.`;
  return `The job has ${workers} and requests ${rangeText(before)}.`;
}

function effect(job: Job): string {
  if (!hasRanks(job)) return "The new number applies when it starts.";
  const how = job.spec?.script
    ? "It saves a checkpoint and resumes from it; a script without the SDK starts from scratch."
    : "With ddp this happens in place; other strategies resume from a checkpoint saved first.";
  return `It is resized as soon as devices are free. ${how}`;
}
