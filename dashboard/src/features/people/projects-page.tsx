import { Button, Stack } from "@mantine/core";
import { useState } from "react";
import type { Project } from "@/client";
import { useRights } from "@/shared/api/rights";
import { NameDialog } from "@/shared/dialogs/name-dialog";
import { PageHeading } from "@/shared/page/heading";
import { LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { AnchorLink } from "@/shared/ui/links";
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
  { id: "role", header: "Your role", short: true, cell: ({ role }) => role },
  {
    id: "limits",
    header: "Limits",
    cell: ({ limits }) => limitTexts(limits).join("; ") || "none",
  },
  {
    id: "created",
    header: "Created",
    right: true,
    short: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
];

export default function ProjectsPage() {
  useTitle("Projects");
  const projects = useProjects();
  const { create } = useProjectCommands();
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
      <LoadedTable
        list={projects}
        rows={projects.data}
        what="the projects"
        empty={<Empty title="No projects">{rights.noProject}</Empty>}
        label="Projects"
        columns={COLUMNS}
        rowKey={({ name }) => name}
      />
      {adding ? (
        <NameDialog what="project" create={create} onClose={() => setAdding(false)} />
      ) : null}
    </Stack>
  );
}
