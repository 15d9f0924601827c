import { Textarea, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Project } from "@/client";
import { RequestDialog } from "@/shared/dialogs/request-dialog";
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
  const isComplete = numbers.devices !== undefined && numbers.priority !== undefined;
  // What stays is left out: without folders, a project need not allow all of them.
  const changed = {
    ...(devices !== before.devices && { devices: numbers.devices ?? null }),
    ...(priority !== before.priority && { priority: numbers.priority ?? null }),
    ...(paths !== before.paths && { paths: parsePaths(paths) }),
  };
  const allowsNone = limits.paths?.length === 0;
  const about = (field: string, description = "Empty: no limit") =>
    configured.includes(field)
      ? { description: "Set in trainhall.toml", disabled: true }
      : { description };
  return (
    <RequestDialog
      title={`Limits of ${name}`}
      action="Save limits"
      request={change}
      body={isComplete ? { path: { name }, body: { limits: changed } } : null}
      failure="Could not change the limits"
      onClose={onClose}
    >
      <LimitInput
        label="Most devices of a job"
        {...about("devices")}
        value={devices}
        onChange={setDevices}
        data-autofocus
      />
      <LimitInput
        label="Highest priority"
        {...about("priority")}
        value={priority}
        onChange={setPriority}
      />
      <Textarea
        label="Folders of hosts that jobs may name"
        {...about(
          "paths",
          `One a line, as in /shared/vision${allowsNone ? "" : "; empty: no limit"}`,
        )}
        placeholder={allowsNone ? "No folder may be named now" : undefined}
        rows={4}
        value={paths}
        onChange={({ currentTarget }) => setPaths(currentTarget.value)}
      />
    </RequestDialog>
  );
}

interface LimitProps {
  label: string;
  description: string;
  disabled?: boolean;
  value: string;
  onChange: (value: string) => void;
  "data-autofocus"?: true;
}

function LimitInput({ onChange, ...input }: LimitProps) {
  return (
    <TextInput
      inputMode="numeric"
      error={parseLimit(input.value) === undefined ? "must be an integer" : null}
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
      {...input}
    />
  );
}

function textOf(value: number | null | undefined): string {
  return typeof value === "number" ? String(value) : "";
}
