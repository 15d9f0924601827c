import { Button, Group, Modal, NumberInput, Stack, Text, Tooltip } from "@mantine/core";
import { useState } from "react";
import { useResizeJob } from "@/shared/api/resize-job";
import { type Job, whyNoResize } from "@/shared/api/types";
import { plural } from "@/shared/format";
import { ResizeIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { asked, fromTo, isRange, type Range, wish } from "./workers";

/** As many as a spec may ask for. */
const MOST = 4096;
const WHOLE = { min: 1, max: MOST, allowDecimal: false };

/** Gives a job another number of workers; of one that cannot have it, says why. */
export function ResizeButton({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  const why = whyNoResize(job.state);
  return (
    <>
      <Tooltip
        label={why}
        disabled={why === null}
        events={{ hover: true, focus: true, touch: true }}
        multiline
        maw={280}
      >
        {/* Not `disabled`: the reason could be reached by no pointer and no key. */}
        <Button
          size="xs"
          variant="default"
          leftSection={<ResizeIcon />}
          aria-disabled={why !== null}
          data-disabled={why !== null || undefined}
          {...(why === null ? {} : { "aria-description": why })}
          onClick={() => setOpen(why === null)}
        >
          Resize
        </Button>
      </Tooltip>
      {open && why === null ? <ResizeDialog job={job} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function ResizeDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const before = asked(job);
  const [least, setLeast] = useState<number | string>(before.least);
  const [most, setMost] = useState<number | string>(before.most);
  const resize = useResizeJob();
  const range = { least, most };
  const changes = least !== before.least || most !== before.most;
  return (
    <Modal opened onClose={onClose} title={`Resize ${job.name}`} centered>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isRange(range)) return;
          resize.mutate({ id: job.id, resources: wish(range) }, { onSuccess: onClose });
        }}
      >
        <Stack gap="sm">
          <Text size="sm">
            {has(job, before)} {happens(job)}
          </Text>
          <Group grow align="flex-start">
            <NumberInput
              {...WHOLE}
              label="At least"
              value={least}
              onChange={setLeast}
              data-autofocus
            />
            <NumberInput {...WHOLE} label="At most" value={most} onChange={setMost} />
          </Group>
          <Text size="xs" c="dimmed">
            {means(range)}
          </Text>
          {resize.error ? <Problem error={resize.error} what="The job was not resized" /> : null}
          <Group justify="flex-end">
            <Button variant="default" size="xs" onClick={onClose}>
              Keep
            </Button>
            <Button
              type="submit"
              size="xs"
              loading={resize.isPending}
              disabled={!isRange(range) || !changes}
            >
              Resize the job
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** What comes of a range, or what is wrong with it. */
function means(range: Range<number | string>): string {
  if (!isRange(range)) return "“At least” has to be 1 or more, and not above “At most”.";
  return range.least < range.most
    ? "Elastic: it takes as many as are free between the two."
    : "A fixed number; two different ones make the job elastic.";
}

function hasRanks(job: Job): boolean {
  return job.state !== "queued" && job.state !== "paused" && job.state !== "recovering";
}

function has(job: Job, before: Range): string {
  const workers = plural(job.world_size, "worker");
  if (!hasRanks(job)) return `It asks for ${fromTo(before)}.`;
  if (fromTo(before) === workers) return `It has ${workers}.`;
  return `It has ${workers} and asks for ${fromTo(before)}.`;
}

/** What becomes of it now. */
function happens(job: Job): string {
  if (!hasRanks(job)) return "It starts with the new number.";
  const how = job.spec.script
    ? "it saves a checkpoint and goes on from there; a script that does not use the SDK starts anew."
    : "under ddp in place, otherwise from a checkpoint that it saves.";
  return `It changes as soon as there is room: ${how}`;
}
