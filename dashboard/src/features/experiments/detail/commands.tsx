import { Group } from "@mantine/core";
import type { Experiment } from "@/shared/api/types";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { Command } from "@/shared/ui/command";
import { AgainIcon, CancelIcon, PauseIcon, PlayIcon } from "@/shared/ui/icons";
import { ButtonLink } from "@/shared/ui/links";
import { useExperimentCommands } from "../api/experiments";

/** Pause or resume, and cancel; an ended experiment can be created again. */
export function ExperimentCommands({ experiment }: { experiment: Experiment }) {
  const { pause, resume, cancel } = useExperimentCommands(experiment);
  const { id, name, allowed_commands: allowed } = experiment;
  if (allowed.length === 0) {
    return (
      <ButtonLink
        size="xs"
        variant="default"
        leftSection={<AgainIcon />}
        to="/experiments/new"
        search={{ from: id }}
      >
        Create again
      </ButtonLink>
    );
  }
  const path = { experiment_id: id };
  const busy = pause.isPending || resume.isPending || cancel.isPending;
  return (
    <Group gap="xs" wrap="nowrap">
      {allowed.includes("resume") && (
        <Command
          label="Resume"
          icon={<PlayIcon />}
          busy={busy}
          onClick={() => resume.mutate({ path })}
        />
      )}
      {allowed.includes("pause") && (
        <Command
          label="Pause"
          icon={<PauseIcon />}
          busy={busy}
          onClick={() => pause.mutate({ path })}
        />
      )}
      <ConfirmedCommand
        label="Cancel"
        icon={<CancelIcon />}
        busy={busy}
        title={`Cancel ${name}?`}
        text="This cancels its jobs without saving, and starts no further trial. Completed trials are kept. To continue later, pause the experiment instead."
        action="Cancel experiment"
        onConfirm={() => cancel.mutate({ path })}
      />
    </Group>
  );
}
