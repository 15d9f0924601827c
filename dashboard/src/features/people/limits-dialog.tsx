import { Textarea, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Project } from "@/client";
import { Dialog } from "@/shared/ui/dialog";
import { Problem } from "@/shared/ui/problem";
import { useProjectCommands } from "./api";
import { parseLimit, parsePaths } from "./limits";

interface Props {
  project: Project;
  onClose: () => void;
}

/** Changes the limits of a project. */
export function LimitsDialog({ project: { name, limits }, onClose }: Props) {
  const { change } = useProjectCommands();
  const [devices, setDevices] = useState(textOf(limits.devices));
  const [priority, setPriority] = useState(textOf(limits.priority));
  const [paths, setPaths] = useState((limits.paths ?? []).join("\n"));
  const numbers = { devices: parseLimit(devices), priority: parseLimit(priority) };
  const wrong = (value: number | null | undefined) =>
    value === undefined ? "must be an integer" : null;
  return (
    <Dialog
      title={`Limits of ${name}`}
      action="Save limits"
      busy={change.isPending}
      disabled={numbers.devices === undefined || numbers.priority === undefined}
      onClose={onClose}
      onSubmit={() =>
        change.mutate(
          {
            path: { name },
            body: {
              limits: {
                devices: numbers.devices ?? null,
                priority: numbers.priority ?? null,
                paths: parsePaths(paths),
              },
            },
          },
          { onSuccess: onClose },
        )
      }
    >
      <TextInput
        label="Devices at once"
        description="Empty: no limit"
        inputMode="numeric"
        value={devices}
        error={wrong(numbers.devices)}
        onChange={({ currentTarget }) => setDevices(currentTarget.value)}
        data-autofocus
      />
      <TextInput
        label="Highest priority"
        description="Empty: no limit"
        inputMode="numeric"
        value={priority}
        error={wrong(numbers.priority)}
        onChange={({ currentTarget }) => setPriority(currentTarget.value)}
      />
      <Textarea
        label="Folders of hosts that jobs may name"
        description="One a line, as in /shared/vision; empty: no limit"
        rows={4}
        value={paths}
        onChange={({ currentTarget }) => setPaths(currentTarget.value)}
      />
      {change.error ? <Problem error={change.error} what="Could not change the limits" /> : null}
    </Dialog>
  );
}

function textOf(value: number | null | undefined): string {
  return typeof value === "number" ? String(value) : "";
}
