import { NativeSelect, TextInput } from "@mantine/core";
import { useState } from "react";
import { useMe } from "@/shared/api/login";
import { ROLES, rolesUpTo } from "@/shared/api/rights";
import type { Role } from "@/shared/api/types";
import { Dialog } from "@/shared/ui/dialog";
import { Problem } from "@/shared/ui/problem";
import { useTokenCommands } from "./api";

const DAY_MS = 86_400_000;
const LIVES = [7, 30, 90, 365];
const METRICS = "metrics";

interface Props {
  onClose: () => void;
  onCreated: (token: string) => void;
}

/** Creates a token of the user, narrowed to a project and a role, or to reading metrics. */
export function TokenForm({ onClose, onCreated }: Props) {
  const projects = useMe().data?.projects ?? [];
  const { create } = useTokenCommands();
  const [name, setName] = useState("");
  const [reach, setReach] = useState("");
  const [project, setProject] = useState("");
  const [days, setDays] = useState("90");
  const own = projects.find((each) => each.name === project)?.role;
  const roles = own === undefined ? ROLES : rolesUpTo(own);
  const role = roles.find((each) => each === reach);
  const onlyMetrics = reach === METRICS;
  return (
    <Dialog
      title="New API token"
      action="Create token"
      busy={create.isPending}
      disabled={name.trim() === ""}
      onClose={onClose}
      onSubmit={() =>
        create.mutate(
          {
            body: {
              name: name.trim(),
              expires_at: new Date(Date.now() + Number(days) * DAY_MS).toISOString(),
              ...(onlyMetrics ? { scopes: [METRICS] } : {}),
              ...(project === "" || onlyMetrics ? {} : { project }),
              ...(role === undefined ? {} : { role }),
            },
          },
          { onSuccess: ({ token }) => onCreated(token) },
        )
      }
    >
      <TextInput
        label="Name"
        description="What it is for"
        placeholder="ci"
        value={name}
        maxLength={128}
        autoComplete="off"
        onChange={({ currentTarget }) => setName(currentTarget.value)}
        data-autofocus
      />
      <NativeSelect
        label="Allows at most"
        value={reach}
        onChange={({ currentTarget }) => setReach(currentTarget.value)}
        data={[
          { value: "", label: "What you may" },
          ...roles.map((each: Role) => ({ value: each, label: `The role ${each}` })),
          { value: METRICS, label: "Reading /metrics, for Prometheus" },
        ]}
      />
      {onlyMetrics || projects.length === 0 ? null : (
        <NativeSelect
          label="Project"
          value={project}
          onChange={({ currentTarget }) => setProject(currentTarget.value)}
          data={[
            { value: "", label: "All of yours" },
            ...projects.map((each) => ({ value: each.name, label: each.name })),
          ]}
        />
      )}
      <NativeSelect
        label="Expires in"
        value={days}
        onChange={({ currentTarget }) => setDays(currentTarget.value)}
        data={LIVES.map((each) => ({ value: String(each), label: `${each} days` }))}
      />
      {create.error ? <Problem error={create.error} what="Could not create the token" /> : null}
    </Dialog>
  );
}
