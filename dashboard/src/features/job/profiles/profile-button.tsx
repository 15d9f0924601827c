import { Checkbox, NumberInput, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { useRequestProfile } from "@/features/job/api/profiles";
import type { Job } from "@/shared/api/types";
import { Dialog } from "@/shared/dialogs/dialog";
import { Command } from "@/shared/ui/command";
import { Problem } from "@/shared/ui/problem";
import { ranksOf } from "./ranks";

const MAX_STEPS = 200;

/** Asks for a profile of a job's next steps, or shows why that is not possible. */
export function ProfileButton({ job, busy }: { job: Job; busy: boolean }) {
  const [open, setOpen] = useState(false);
  const refused = job.refused_commands.profile;
  return (
    <>
      <Command
        label="Profile"
        name="Profile steps"
        refused={refused}
        busy={busy}
        onClick={() => setOpen(true)}
      />
      {open ? <ProfileDialog job={job} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function ProfileDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const [steps, setSteps] = useState<number | string>(20);
  const [ranks, setRanks] = useState("");
  const [stacks, setStacks] = useState(false);
  const [memory, setMemory] = useState(false);
  const request = useRequestProfile(job.id);
  const chosen = ranksOf(ranks);
  const valid = typeof steps === "number" && chosen !== undefined;
  return (
    <Dialog
      title={`Profile ${job.name}`}
      action="Profile steps"
      busy={request.isPending}
      disabled={!valid}
      onClose={onClose}
      onSubmit={() => {
        if (!valid) return;
        request.mutate(
          { path: { job_id: job.id }, body: { steps, ranks: chosen, stacks, memory } },
          { onSuccess: onClose },
        );
      }}
    >
      <Text size="sm">All chosen ranks record the same steps, the next ones.</Text>
      <NumberInput
        label="Steps"
        min={1}
        max={MAX_STEPS}
        allowDecimal={false}
        value={steps}
        onChange={setSteps}
        data-autofocus
      />
      {job.world_size > 1 ? (
        <TextInput
          label="Ranks"
          description={`As in 0,3; empty: all ${job.world_size}`}
          value={ranks}
          error={chosen === undefined ? "Numbers with commas between them" : null}
          onChange={(event) => setRanks(event.currentTarget.value)}
        />
      ) : null}
      <Checkbox
        label="Python calls (steps take longer)"
        checked={stacks}
        onChange={(event) => setStacks(event.currentTarget.checked)}
      />
      <Checkbox
        label="Allocations of tensors"
        checked={memory}
        onChange={(event) => setMemory(event.currentTarget.checked)}
      />
      {request.error ? <Problem error={request.error} what="Could not profile the job" /> : null}
    </Dialog>
  );
}
