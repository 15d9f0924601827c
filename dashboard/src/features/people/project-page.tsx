import { Group, NativeSelect, Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import type { Project, ProjectMember } from "@/client";
import { ApiError } from "@/shared/api/problem";
import { ROLES, useRights } from "@/shared/api/rights";
import type { Role } from "@/shared/api/types";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { NameInput } from "@/shared/dialogs/name-input";
import { RequestDialog } from "@/shared/dialogs/request-dialog";
import { PageHeading } from "@/shared/page/heading";
import { Section } from "@/shared/page/section";
import { Secrets } from "@/shared/secrets/secrets";
import { commandsColumn, LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Command } from "@/shared/ui/command";
import { NotFound } from "@/shared/ui/empty";
import { PlusIcon, TrashIcon } from "@/shared/ui/icons";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
import { useMembers, useProject, useProjectCommands } from "./api";
import { limitTexts } from "./limits";
import { LimitsDialog } from "./limits-dialog";

const route = getRouteApi("/projects/$project");
const DEFAULT = "default";

export default function ProjectPage() {
  const { project: name } = route.useParams();
  useTitle(`Project ${name}`);
  const project = useProject(name);
  const audit = useRights().inProject(name, "maintainer");
  if (project.error instanceof ApiError && project.error.status === 404) {
    return <NotFound what="project" id={name} />;
  }
  return (
    <Stack gap="md">
      <AnchorLink to="/projects" size="xs">
        Projects
      </AnchorLink>
      <PageHeading title={name}>
        <Group gap="xs">
          <ButtonLink to="/jobs" search={{ project: name }} size="xs" variant="default">
            Jobs
          </ButtonLink>
          <Refusable refused={audit} label="Audit">
            <ButtonLink to="/audit" search={{ project: name }} size="xs" variant="default">
              Audit
            </ButtonLink>
          </Refusable>
          <Delete name={name} />
        </Group>
      </PageHeading>
      <Pending query={project} what="the project" />
      {project.data ? <Limits project={project.data} /> : null}
      <Members name={name} />
      <ProjectSecrets name={name} />
    </Stack>
  );
}

function ProjectSecrets({ name }: { name: string }) {
  const { inProject } = useRights();
  return (
    <Secrets
      project={name}
      hidden={inProject(name, "member")}
      refused={inProject(name, "maintainer")}
    />
  );
}

function Delete({ name }: { name: string }) {
  const navigate = route.useNavigate();
  const { admin } = useRights();
  const { remove } = useProjectCommands();
  return (
    <ConfirmedCommand
      label="Delete"
      name={`Delete project ${name}`}
      icon={<TrashIcon />}
      busy={remove.isPending}
      refused={admin ?? (name === DEFAULT ? "The default project stays." : null)}
      title={`Delete project ${name}?`}
      text="Its roles and service accounts go with it. A project that still has jobs, experiments or reports is not deleted."
      action="Delete project"
      onConfirm={() =>
        remove.mutate({ path: { name } }, { onSuccess: () => void navigate({ to: "/projects" }) })
      }
    />
  );
}

function Limits({ project }: { project: Project }) {
  const [open, setOpen] = useState(false);
  const { admin } = useRights();
  const texts = limitTexts(project.limits);
  return (
    <Section
      title="Limits"
      command={<Command label="Change limits" refused={admin} onClick={() => setOpen(true)} />}
    >
      <Text size="sm" c={texts.length > 0 ? undefined : "dimmed"}>
        {texts.length > 0 ? `${texts.join("; ")}.` : "None."}
      </Text>
      <Text size="xs" c="dimmed">
        Quotas and devices in use are on the{" "}
        <AnchorLink to="/queue" underline="always">
          queue’s page
        </AnchorLink>
        .
      </Text>
      {open ? <LimitsDialog project={project} onClose={() => setOpen(false)} /> : null}
    </Section>
  );
}

function Members({ name }: { name: string }) {
  const members = useMembers(name);
  const refused = useRights().inProject(name, "maintainer");
  const [adding, setAdding] = useState(false);
  return (
    <Section
      title="Members"
      command={
        <Command
          label="Add a member"
          icon={<PlusIcon />}
          refused={refused}
          onClick={() => setAdding(true)}
        />
      }
    >
      <LoadedTable
        list={members}
        rows={members.data}
        what="the members"
        empty={
          <Text size="sm" c="dimmed">
            No members. Admins reach every project.
          </Text>
        }
        label="Members"
        columns={columnsOf(name, refused)}
        rowKey={({ member }) => member}
      />
      {adding ? <AddMember project={name} onClose={() => setAdding(false)} /> : null}
    </Section>
  );
}

const columnsOf = (project: string, refused: string | null): Column<ProjectMember>[] => [
  {
    id: "member",
    header: "Member",
    rowHeader: true,
    cell: ({ member }) => <b>{member.replace(/^group:/, "")}</b>,
  },
  { id: "kind", header: "Kind", short: true, cell: ({ kind }) => KINDS[kind] },
  {
    id: "role",
    header: "Role",
    short: true,
    cell: (member) => <RoleSelect project={project} of={member} refused={refused} />,
  },
  commandsColumn((member) => <Remove project={project} of={member} refused={refused} />),
];

const KINDS = { person: "person", service: "service account", group: "group" } as const;

interface MemberProps {
  project: string;
  of: ProjectMember;
  refused: string | null;
}

function RoleSelect({ project, of: { member, role }, refused }: MemberProps) {
  const { setMember } = useProjectCommands();
  if (refused !== null) return role;
  return (
    <NativeSelect
      size="xs"
      display="inline-block"
      aria-label={`Role of ${member}`}
      w={140}
      value={role}
      disabled={setMember.isPending}
      data={[...ROLES]}
      onChange={({ currentTarget }) =>
        setMember.mutate({
          path: { name: project, member },
          body: { role: currentTarget.value as Role },
        })
      }
    />
  );
}

function Remove({ project, of: { member }, refused }: MemberProps) {
  const { removeMember } = useProjectCommands();
  return (
    <Command
      label="Remove"
      name={`Remove ${member}`}
      icon={<TrashIcon />}
      compact
      danger
      busy={removeMember.isPending}
      refused={refused}
      onClick={() => removeMember.mutate({ path: { name: project, member } })}
    />
  );
}

function AddMember({ project, onClose }: { project: string; onClose: () => void }) {
  const { setMember } = useProjectCommands();
  const [kind, setKind] = useState<"user" | "group">("user");
  const [text, setText] = useState("");
  const [role, setRole] = useState<Role>("member");
  const name = text.trim();
  const member = kind === "group" ? `group:${name}` : name;
  return (
    <RequestDialog
      title={`Add a member to ${project}`}
      action="Add member"
      request={setMember}
      body={name === "" ? null : { path: { name: project, member }, body: { role } }}
      failure="Could not add the member"
      onClose={onClose}
    >
      <NativeSelect
        label="Kind"
        value={kind}
        data={[
          { value: "user", label: "User or service account" },
          { value: "group", label: "Group" },
        ]}
        onChange={({ currentTarget }) =>
          setKind(currentTarget.value === "group" ? "group" : "user")
        }
      />
      <NameInput value={text} onChange={setText} />
      <NativeSelect
        label="Role"
        description="A viewer reads; a member also submits and commands own jobs; a maintainer commands all jobs and manages members."
        value={role}
        data={[...ROLES]}
        onChange={({ currentTarget }) => setRole(currentTarget.value as Role)}
      />
    </RequestDialog>
  );
}
