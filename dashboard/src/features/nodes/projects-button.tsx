import { Checkbox, Radio, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { useMe } from "@/shared/api/login";
import { useRights } from "@/shared/api/rights";
import type { ClusterNode } from "@/shared/api/types";
import { RequestDialog } from "@/shared/dialogs/request-dialog";
import { Command } from "@/shared/ui/command";
import { useChangeNode } from "./api/nodes";

type Limited = Pick<ClusterNode, "id" | "name" | "projects">;

/** Limits a node to the jobs of some projects. */
export function ProjectsButton({ node }: { node: Limited }) {
  const [open, setOpen] = useState(false);
  const { admin } = useRights();
  return (
    <>
      <Command
        label="Projects"
        name={`Projects of ${node.name}`}
        refused={admin}
        onClick={() => setOpen(true)}
      />
      {open ? <ProjectsDialog node={node} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function ProjectsDialog({ node, onClose }: { node: Limited; onClose: () => void }) {
  const visible = (useMe().data?.projects ?? []).map(({ name }) => name);
  const change = useChangeNode();
  const [limited, setLimited] = useState(node.projects !== null);
  const [chosen, setChosen] = useState(node.projects ?? []);
  const names = [...new Set([...visible, ...chosen])].sort();
  const projects = limited ? chosen : null;
  return (
    <RequestDialog
      title={`Projects of ${node.name}`}
      action="Save projects"
      request={change}
      body={projects?.length === 0 ? null : { path: { node_id: node.id }, body: { projects } }}
      failure="Could not change the node"
      onClose={onClose}
    >
      <Radio.Group
        label="It gets the jobs of"
        value={limited ? "some" : "all"}
        onChange={(value) => setLimited(value === "some")}
      >
        <Stack gap={6} mt={4}>
          <Radio size="xs" value="all" label="all projects" />
          <Radio size="xs" value="some" label="only these projects:" />
        </Stack>
      </Radio.Group>
      <Checkbox.Group aria-label="Projects" value={chosen} onChange={setChosen}>
        <Stack gap={6} pl="xl" mah="40vh" style={{ overflowY: "auto" }}>
          {names.map((name) => (
            <Checkbox key={name} size="xs" value={name} label={name} disabled={!limited} />
          ))}
        </Stack>
      </Checkbox.Group>
      <Text size="xs" c="dimmed">
        Jobs that run on it now stay.
      </Text>
    </RequestDialog>
  );
}
