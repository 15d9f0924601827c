import { Button, Stack, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Project } from "@/client";
import { useRights } from "@/shared/api/rights";
import { PageHeading } from "@/shared/page/heading";
import stacked from "@/shared/table/stacked.module.css";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Dialog } from "@/shared/ui/dialog";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { AnchorLink } from "@/shared/ui/links";
import { Pending, Problem } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
import { Ago } from "@/shared/ui/time";
import { useProjectCommands, useProjects } from "./api";
import { limitTexts } from "./limits";

const COLUMNS: Column<Project>[] = [
  {
    id: "name",
    header: "Project",
    rowHeader: true,
    cell: ({ name }) => (
      <AnchorLink to="/projects/$project" params={{ project: name }} size="sm" fw={600}>
        {name}
      </AnchorLink>
    ),
  },
  { id: "role", header: "Your role", cell: ({ role }) => role },
  {
    id: "limits",
    header: "Limits",
    cell: ({ limits }) => limitTexts(limits).join("; ") || "none",
  },
  {
    id: "created",
    header: "Created",
    right: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
];

export default function ProjectsPage() {
  useTitle("Projects");
  const projects = useProjects();
  const rights = useRights();
  const [adding, setAdding] = useState(false);
  return (
    <Stack gap="md">
      <PageHeading title="Projects">
        <Refusable refused={rights.admin} label="New project" icon={<PlusIcon />}>
          <Button size="xs" leftSection={<PlusIcon />} onClick={() => setAdding(true)}>
            New project
          </Button>
        </Refusable>
      </PageHeading>
      <Pending query={projects} what="the projects" />
      {projects.data?.length === 0 ? (
        <Empty title="No projects">
          You have no role in a project yet. A maintainer of a project or an admin can give you one.
        </Empty>
      ) : null}
      {projects.data?.length ? (
        <Table
          label="Projects"
          columns={COLUMNS}
          rows={projects.data}
          rowKey={({ name }) => name}
          className={stacked.stacked}
          cards
        />
      ) : null}
      {adding ? <NewProject onClose={() => setAdding(false)} /> : null}
    </Stack>
  );
}

function NewProject({ onClose }: { onClose: () => void }) {
  const { create } = useProjectCommands();
  const [name, setName] = useState("");
  return (
    <Dialog
      title="New project"
      action="Add project"
      busy={create.isPending}
      disabled={name.trim() === ""}
      onClose={onClose}
      onSubmit={() => create.mutate({ body: { name: name.trim() } }, { onSuccess: onClose })}
    >
      <TextInput
        label="Name"
        value={name}
        maxLength={128}
        autoComplete="off"
        onChange={({ currentTarget }) => setName(currentTarget.value)}
        data-autofocus
      />
      {create.error ? <Problem error={create.error} what="Could not add the project" /> : null}
    </Dialog>
  );
}
