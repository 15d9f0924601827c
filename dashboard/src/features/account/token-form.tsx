import { NativeSelect } from "@mantine/core";
import { useState } from "react";
import type { CreateTokenData } from "@/client";
import { useMe } from "@/shared/api/login";
import { ROLES, rolesUpTo } from "@/shared/api/rights";
import { NameInput } from "@/shared/dialogs/name-input";
import { ProjectSelect } from "@/shared/dialogs/project-select";
import { RequestDialog } from "@/shared/dialogs/request-dialog";
import { useTokenCommands } from "./api";

const DAY_SECONDS = 86_400;
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
  const [text, setText] = useState("");
  const [reach, setReach] = useState("");
  const [project, setProject] = useState("");
  const [days, setDays] = useState("90");
  const name = text.trim();
  const own = projects.find((each) => each.name === project)?.role;
  const roles = own === undefined ? ROLES : rolesUpTo(own);
  const role = roles.find((each) => each === reach);
  const onlyMetrics = reach === METRICS;
  const body: CreateTokenData["body"] = {
    name,
    expires_in: Number(days) * DAY_SECONDS,
    ...(onlyMetrics ? { scopes: [METRICS] } : {}),
    ...(project === "" || onlyMetrics ? {} : { project }),
    ...(role === undefined ? {} : { role }),
  };
  return (
    <RequestDialog
      title="New API token"
      action="Create token"
      request={create}
      body={name === "" ? null : { body }}
      failure="Could not create the token"
      onDone={({ token }) => onCreated(token)}
      onClose={onClose}
    >
      <NameInput description="What it is for" placeholder="ci" value={text} onChange={setText} />
      <NativeSelect
        label="Allows at most"
        value={reach}
        onChange={({ currentTarget }) => setReach(currentTarget.value)}
        data={[
          { value: "", label: "What you may" },
          ...roles.map((each) => ({ value: each, label: `The role ${each}` })),
          { value: METRICS, label: "Reading /metrics, for Prometheus" },
        ]}
      />
      {onlyMetrics || projects.length === 0 ? null : (
        <ProjectSelect none="All of yours" value={project} onChange={setProject} />
      )}
      <NativeSelect
        label="Expires in"
        value={days}
        onChange={({ currentTarget }) => setDays(currentTarget.value)}
        data={LIVES.map((each) => ({ value: String(each), label: `${each} days` }))}
      />
    </RequestDialog>
  );
}
