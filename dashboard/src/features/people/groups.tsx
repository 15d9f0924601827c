import { Button, Group, Stack, Text } from "@mantine/core";
import { useState } from "react";
import type { Group as UserGroup } from "@/client";
import { useRights } from "@/shared/api/rights";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { NameDialog } from "@/shared/dialogs/name-dialog";
import { NameInput } from "@/shared/dialogs/name-input";
import { RequestDialog } from "@/shared/dialogs/request-dialog";
import { plural } from "@/shared/format";
import { Section } from "@/shared/page/section";
import { commandsColumn, LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { Command } from "@/shared/ui/command";
import { PlusIcon, TrashIcon } from "@/shared/ui/icons";
import { Pending } from "@/shared/ui/problem";
import { useGroupCommands, useGroupMembers, useGroups } from "./api";

/** Groups of users, which have roles in projects together. */
export function Groups() {
  const groups = useGroups();
  const { create } = useGroupCommands();
  const { admin: refused } = useRights();
  const [open, setOpen] = useState<"new" | { members: string } | null>(null);
  const close = () => setOpen(null);
  return (
    <Section
      title="Groups"
      command={
        <Command
          label="New group"
          icon={<PlusIcon />}
          refused={refused}
          onClick={() => setOpen("new")}
        />
      }
    >
      <LoadedTable
        list={groups}
        rows={groups.data}
        what="the groups"
        empty={
          <Text size="sm" c="dimmed">
            None. A group has roles in projects, which count for all who are in it.
          </Text>
        }
        label="Groups"
        columns={columnsOf((members) => setOpen({ members }), refused)}
        rowKey={({ name }) => name}
      />
      {open === "new" ? <NameDialog what="group" create={create} onClose={close} /> : null}
      {open !== null && open !== "new" ? (
        <GroupMembers group={open.members} refused={refused} onClose={close} />
      ) : null}
    </Section>
  );
}

const columnsOf = (
  onMembers: (group: string) => void,
  refused: string | null,
): Column<UserGroup>[] => [
  { id: "name", header: "Group", rowHeader: true, cell: ({ name }) => <b>{name}</b> },
  { id: "members", header: "Users", cell: ({ members }) => plural(members, "user") },
  commandsColumn(({ name }) => (
    <Group gap={4} justify="flex-end">
      <Button
        size="xs"
        variant="default"
        aria-label={`Users of ${name}`}
        onClick={() => onMembers(name)}
      >
        Users
      </Button>
      <Delete group={name} refused={refused} />
    </Group>
  )),
];

interface GroupProps {
  group: string;
  refused: string | null;
}

function Delete({ group, refused }: GroupProps) {
  const { remove } = useGroupCommands();
  return (
    <ConfirmedCommand
      label="Delete"
      name={`Delete group ${group}`}
      icon={<TrashIcon />}
      busy={remove.isPending}
      refused={refused}
      title={`Delete group ${group}?`}
      text="Its users lose the roles that they have by it."
      action="Delete group"
      onConfirm={() => remove.mutate({ path: { group } })}
    />
  );
}

function GroupMembers({ group, refused, onClose }: GroupProps & { onClose: () => void }) {
  const members = useGroupMembers(group);
  const { add, removeMember } = useGroupCommands();
  const [user, setUser] = useState("");
  const name = user.trim();
  return (
    <RequestDialog
      title={`Users of ${group}`}
      action="Add user"
      request={add}
      body={refused !== null || name === "" ? null : { path: { group, user: name } }}
      failure="Could not add the user"
      onDone={() => setUser("")}
      onClose={onClose}
    >
      <Pending query={members} what="its users" height={60} />
      {members.data?.length === 0 ? (
        <Text size="sm" c="dimmed">
          No users.
        </Text>
      ) : null}
      <Stack component="ul" gap={4} m={0} p={0} aria-label={`Users of ${group}`}>
        {members.data?.map((member) => (
          <Group key={member.user} component="li" justify="space-between" wrap="nowrap">
            <Text size="sm" style={{ overflowWrap: "anywhere" }}>
              {member.user}
              {member.by_provider ? (
                <Text span size="xs" c="dimmed">
                  {" "}
                  by the OpenID provider
                </Text>
              ) : null}
            </Text>
            <Command
              label={`Remove ${member.user} from ${group}`}
              icon={<TrashIcon />}
              compact
              danger
              busy={removeMember.isPending}
              refused={refused}
              onClick={() => removeMember.mutate({ path: { group, user: member.user } })}
            />
          </Group>
        ))}
      </Stack>
      {refused === null ? (
        <NameInput label="User" value={user} onChange={setUser} />
      ) : (
        <Text size="sm" c="dimmed">
          {refused}
        </Text>
      )}
    </RequestDialog>
  );
}
