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
export function LimitsDialog({ project: { name, limits, configured }, onClose }: Props) {
  const { change } = useProjectCommands();
  const before = {
    devices: textOf(limits.devices),
    priority: textOf(limits.priority),
    paths: (limits.paths ?? []).join("\n"),
  };
  const [devices, setDevices] = useState(before.devices);
  const [priority, setPriority] = useState(before.priority);
  const [paths, setPaths] = useState(before.paths);
  const numbers = { devices: parseLimit(devices), priority: parseLimit(priority) };
  const wrong = (value: number | null | undefined) =>
    value === undefined ? "must be an integer" : null;
  const about = (field: string, description: string) =>
    configured.includes(field)
      ? { description: "Set in trainhall.toml", disabled: true }
      : { description };
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
                // What stays is left out: without folders, a project need not allow all of them.
                ...(devices !== before.devices && { devices: numbers.devices ?? null }),
                ...(priority !== before.priority && { priority: numbers.priority ?? null }),
                ...(paths !== before.paths && { paths: parsePaths(paths) }),
              },
            },
          },
          { onSuccess: onClose },
        )
      }
    >
      <TextInput
        label="Most devices of a job"
        {...about("devices", "Empty: no limit")}
        inputMode="numeric"
        value={devices}
        error={wrong(numbers.devices)}
        onChange={({ currentTarget }) => setDevices(currentTarget.value)}
        data-autofocus
      />
      <TextInput
        label="Highest priority"
        {...about("priority", "Empty: no limit")}
        inputMode="numeric"
        value={priority}
        error={wrong(numbers.priority)}
        onChange={({ currentTarget }) => setPriority(currentTarget.value)}
      />
      <Textarea
        label="Folders of hosts that jobs may name"
        {...about("paths", "One a line, as in /shared/vision; empty: no limit")}
        placeholder={limits.paths?.length === 0 ? "No folder may be named now" : undefined}
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
