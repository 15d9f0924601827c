import { Group, NativeSelect, Stack, Text, TextInput, Title } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import type { Project, ProjectMember } from "@/client";
import { ApiError } from "@/shared/api/problem";
import { ROLES, useRights } from "@/shared/api/rights";
import type { Role } from "@/shared/api/types";
import { PageHeading } from "@/shared/page/heading";
import stacked from "@/shared/table/stacked.module.css";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Command } from "@/shared/ui/command";
import { Confirm } from "@/shared/ui/confirm";
import { Dialog } from "@/shared/ui/dialog";
import { NotFound } from "@/shared/ui/empty";
import { PlusIcon, TrashIcon } from "@/shared/ui/icons";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { Pending, Problem } from "@/shared/ui/problem";
import { useMembers, useProject, useProjectCommands } from "./api";
import { limitTexts } from "./limits";
import { LimitsDialog } from "./limits-dialog";

const route = getRouteApi("/projects/$project");
const DEFAULT = "default";

export default function ProjectPage() {
  const { project: name } = route.useParams();
  useTitle(`Project ${name}`);
  const project = useProject(name);
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
          <ButtonLink to="/audit" search={{ project: name }} size="xs" variant="default">
            Audit
          </ButtonLink>
          <Delete name={name} />
        </Group>
      </PageHeading>
      <Pending query={project} what="the project" />
      {project.data ? <Limits project={project.data} /> : null}
      <Members name={name} />
    </Stack>
  );
}

function Delete({ name }: { name: string }) {
  const navigate = route.useNavigate();
  const { admin } = useRights();
  const { remove } = useProjectCommands();
  return (
    <Confirm
      title={`Delete project ${name}?`}
      text="Its roles and service accounts go with it. A project that still has jobs, experiments or reports is not deleted."
      action="Delete project"
      onConfirm={() =>
        remove.mutate({ path: { name } }, { onSuccess: () => void navigate({ to: "/projects" }) })
      }
    >
      {(ask) => (
        <Command
          label="Delete"
          name={`Delete project ${name}`}
          icon={<TrashIcon />}
          danger
          busy={remove.isPending}
          refused={admin ?? (name === DEFAULT ? "The default project stays." : null)}
          onClick={ask}
        />
      )}
    </Confirm>
  );
}

function Limits({ project }: { project: Project }) {
  const [open, setOpen] = useState(false);
  const { admin } = useRights();
  const texts = limitTexts(project.limits);
  return (
    <section aria-labelledby="limits">
      <Group gap="sm" mb={4}>
        <Title order={2} size="h4" id="limits">
          Limits
        </Title>
        <Command label="Change limits" refused={admin} onClick={() => setOpen(true)} />
      </Group>
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
    </section>
  );
}

function Members({ name }: { name: string }) {
  const members = useMembers(name);
  const refused = useRights().inProject(name, "maintainer");
  const [adding, setAdding] = useState(false);
  return (
    <section aria-labelledby="members">
      <Group gap="sm" mb="xs">
        <Title order={2} size="h4" id="members">
          Members
        </Title>
        <Command
          label="Add a member"
          icon={<PlusIcon />}
          refused={refused}
          onClick={() => setAdding(true)}
        />
      </Group>
      <Pending query={members} what="the members" />
      {members.data?.length === 0 ? (
        <Text size="sm" c="dimmed">
          No members. Admins reach every project.
        </Text>
      ) : null}
      {members.data?.length ? (
        <Table
          label="Members"
          columns={columnsOf(name, refused)}
          rows={members.data}
          rowKey={({ member }) => member}
          className={stacked.stacked}
          cards
        />
      ) : null}
      {adding ? <AddMember project={name} onClose={() => setAdding(false)} /> : null}
    </section>
  );
}

const columnsOf = (project: string, refused: string | null): Column<ProjectMember>[] => [
  {
    id: "member",
    header: "Member",
    rowHeader: true,
    cell: ({ member }) => <b>{member.replace(/^group:/, "")}</b>,
  },
  { id: "kind", header: "Kind", cell: ({ kind }) => KINDS[kind] },
  {
    id: "role",
    header: "Role",
    cell: (member) => <RoleSelect project={project} of={member} refused={refused} />,
  },
  {
    id: "commands",
    header: "Commands",
    hidden: true,
    right: true,
    cell: (member) => <Remove project={project} of={member} refused={refused} />,
  },
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
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("member");
  const member = kind === "group" ? `group:${name.trim()}` : name.trim();
  return (
    <Dialog
      title={`Add a member to ${project}`}
      action="Add member"
      busy={setMember.isPending}
      disabled={name.trim() === ""}
      onClose={onClose}
      onSubmit={() =>
        setMember.mutate(
          { path: { name: project, member }, body: { role } },
          { onSuccess: onClose },
        )
      }
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
      <TextInput
        label="Name"
        value={name}
        autoComplete="off"
        onChange={({ currentTarget }) => setName(currentTarget.value)}
        data-autofocus
      />
      <NativeSelect
        label="Role"
        description="A viewer reads; a member also submits and commands own jobs; a maintainer commands all jobs and manages members."
        value={role}
        data={[...ROLES]}
        onChange={({ currentTarget }) => setRole(currentTarget.value as Role)}
      />
      {setMember.error ? <Problem error={setMember.error} what="Could not add the member" /> : null}
    </Dialog>
  );
}
