import { Button, Group, Stack, Text, TextInput, Title } from "@mantine/core";
import { useState } from "react";
import type { Group as UserGroup } from "@/client";
import { useRights } from "@/shared/api/rights";
import { plural } from "@/shared/format";
import stacked from "@/shared/table/stacked.module.css";
import { type Column, Table } from "@/shared/table/table";
import { Command } from "@/shared/ui/command";
import { Confirm } from "@/shared/ui/confirm";
import { Dialog } from "@/shared/ui/dialog";
import { PlusIcon, TrashIcon } from "@/shared/ui/icons";
import { Pending, Problem } from "@/shared/ui/problem";
import { useGroupCommands, useGroupMembers, useGroups } from "./api";

/** Groups of users, which have roles in projects together. */
export function Groups() {
  const groups = useGroups();
  const { admin: refused } = useRights();
  const [open, setOpen] = useState<"new" | { members: string } | null>(null);
  const close = () => setOpen(null);
  return (
    <section aria-labelledby="groups">
      <Group gap="sm" mb="xs">
        <Title order={2} size="h4" id="groups">
          Groups
        </Title>
        <Command
          label="New group"
          icon={<PlusIcon />}
          refused={refused}
          onClick={() => setOpen("new")}
        />
      </Group>
      <Pending query={groups} what="the groups" height={80} />
      {groups.data?.length === 0 ? (
        <Text size="sm" c="dimmed">
          None. A group has roles in projects, which count for all who are in it.
        </Text>
      ) : null}
      {groups.data?.length ? (
        <Table
          label="Groups"
          columns={columnsOf((members) => setOpen({ members }), refused)}
          rows={groups.data}
          rowKey={({ name }) => name}
          className={stacked.stacked}
          cards
        />
      ) : null}
      {open === "new" ? <NewGroup onClose={close} /> : null}
      {open !== null && open !== "new" ? (
        <GroupMembers group={open.members} refused={refused} onClose={close} />
      ) : null}
    </section>
  );
}

const columnsOf = (
  onMembers: (group: string) => void,
  refused: string | null,
): Column<UserGroup>[] => [
  { id: "name", header: "Group", rowHeader: true, cell: ({ name }) => <b>{name}</b> },
  { id: "members", header: "Users", cell: ({ members }) => plural(members, "user") },
  {
    id: "commands",
    header: "Commands",
    hidden: true,
    right: true,
    cell: ({ name }) => (
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
    ),
  },
];

function Delete({ group, refused }: { group: string; refused: string | null }) {
  const { remove } = useGroupCommands();
  return (
    <Confirm
      title={`Delete group ${group}?`}
      text="Its users lose the roles that they have by it."
      action="Delete group"
      onConfirm={() => remove.mutate({ path: { group } })}
    >
      {(ask) => (
        <Command
          label="Delete"
          name={`Delete group ${group}`}
          icon={<TrashIcon />}
          danger
          busy={remove.isPending}
          refused={refused}
          onClick={ask}
        />
      )}
    </Confirm>
  );
}

function NewGroup({ onClose }: { onClose: () => void }) {
  const { create } = useGroupCommands();
  const [name, setName] = useState("");
  return (
    <Dialog
      title="New group"
      action="Add group"
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
      {create.error ? <Problem error={create.error} what="Could not add the group" /> : null}
    </Dialog>
  );
}

interface MembersProps {
  group: string;
  refused: string | null;
  onClose: () => void;
}

function GroupMembers({ group, refused, onClose }: MembersProps) {
  const members = useGroupMembers(group);
  const { add, removeMember } = useGroupCommands();
  const [user, setUser] = useState("");
  return (
    <Dialog
      title={`Users of ${group}`}
      action="Add user"
      busy={add.isPending}
      disabled={refused !== null || user.trim() === ""}
      onClose={onClose}
      onSubmit={() =>
        add.mutate({ path: { group, user: user.trim() } }, { onSuccess: () => setUser("") })
      }
    >
      <Pending query={members} what="its users" height={60} />
      <Stack component="ul" gap={4} m={0} p={0} aria-label={`Users of ${group}`}>
        {members.data?.map((member) => (
          <Group key={member.user} component="li" justify="space-between" wrap="nowrap">
            <Text size="sm">
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
              name={`Remove ${member.user} from ${group}`}
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
        <TextInput
          label="User"
          value={user}
          autoComplete="off"
          onChange={({ currentTarget }) => setUser(currentTarget.value)}
          data-autofocus
        />
      ) : null}
      {add.error ? <Problem error={add.error} what="Could not add the user" /> : null}
    </Dialog>
  );
}
