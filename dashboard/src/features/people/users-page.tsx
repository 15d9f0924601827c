import { Button, Group, Stack, Switch, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import type { User } from "@/client";
import { useMe } from "@/shared/api/login";
import { itemsOf } from "@/shared/api/pages";
import { useRights } from "@/shared/api/rights";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { PageHeading } from "@/shared/page/heading";
import { commandsColumn, LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Command } from "@/shared/ui/command";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { Refusable } from "@/shared/ui/refusable";
import { Ago } from "@/shared/ui/time";
import { useUserCommands, useUsers } from "./api";
import { Groups } from "./groups";
import { NewUserDialog, PasswordDialog } from "./user-dialogs";

const route = getRouteApi("/users");

export default function UsersPage() {
  useTitle("Users");
  const { removed = false } = route.useSearch();
  const navigate = route.useNavigate();
  const list = useUsers(removed);
  const users = itemsOf(list.data, ({ name }) => name);
  const rights = useRights();
  const [open, setOpen] = useState<"new" | { password: string } | null>(null);
  const close = () => setOpen(null);
  return (
    <Stack gap="md">
      <PageHeading title="Users">
        <Group gap="sm">
          {rights.isAdmin ? (
            <Switch
              size="xs"
              label="Removed users"
              checked={removed}
              onChange={({ currentTarget }) =>
                void navigate({
                  search: currentTarget.checked ? { removed: true } : {},
                  replace: true,
                })
              }
            />
          ) : null}
          <Refusable refused={rights.admin} label="New user" icon={<PlusIcon />}>
            <Button size="xs" leftSection={<PlusIcon />} onClick={() => setOpen("new")}>
              New user
            </Button>
          </Refusable>
        </Group>
      </PageHeading>
      {rights.isAdmin ? null : (
        <Text size="sm" c="dimmed">
          The members of your projects. Admins add and change users.
        </Text>
      )}
      <LoadedTable
        list={list}
        rows={users}
        what="the users"
        empty={<Empty title={removed ? "No removed users" : "No users"} />}
        label="Users"
        columns={columnsOf((password) => setOpen({ password }), rights.admin)}
        rowKey={({ name }) => name}
      />
      <Groups />
      {open === "new" ? <NewUserDialog onClose={close} /> : null}
      {open !== null && open !== "new" ? (
        <PasswordDialog user={open.password} onClose={close} />
      ) : null}
    </Stack>
  );
}

type OnPassword = (user: string) => void;

const columnsOf = (onPassword: OnPassword, refused: string | null): Column<User>[] => [
  { id: "name", header: "User", rowHeader: true, cell: ({ name }) => <b>{name}</b> },
  {
    id: "kind",
    header: "Kind",
    cell: ({ kind, project }) =>
      kind === "person" ? "person" : `service account${project === null ? "" : ` of ${project}`}`,
  },
  { id: "admin", header: "Admin", short: true, cell: ({ admin }) => (admin ? "yes" : "no") },
  {
    id: "created",
    header: "Added",
    short: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
  commandsColumn((user) =>
    user.removed_at === null ? (
      <Commands user={user} refused={refused} onPassword={onPassword} />
    ) : (
      <Restore user={user} refused={refused} />
    ),
  ),
];

interface CommandsProps {
  user: User;
  refused: string | null;
}

function Commands({ user, refused, onPassword }: CommandsProps & { onPassword: OnPassword }) {
  const { name, kind, admin } = user;
  const me = useMe().data;
  const { change, remove } = useUserCommands();
  const isPerson = kind === "person";
  return (
    <Group gap={4} justify="flex-end">
      {isPerson ? (
        <Command
          label="Set password"
          name={`Set password of ${name}`}
          refused={name === me?.user ? null : refused}
          onClick={() => onPassword(name)}
        />
      ) : null}
      {isPerson ? (
        <Command
          label={admin ? "Make no admin" : "Make admin"}
          name={`Make ${admin ? "no admin" : "admin"}: ${name}`}
          busy={change.isPending}
          refused={refused}
          onClick={() => change.mutate({ path: { name }, body: { admin: !admin } })}
        />
      ) : null}
      <ConfirmedCommand
        label="Remove"
        name={`Remove ${name}`}
        busy={remove.isPending}
        refused={refused}
        title={`Remove ${name}?`}
        text="Sessions, API tokens and roles end at once; jobs continue. The name stays taken, and an admin can restore the user."
        action="Remove user"
        onConfirm={() => remove.mutate({ path: { name } })}
      />
    </Group>
  );
}

function Restore({ user: { name }, refused }: CommandsProps) {
  const { change } = useUserCommands();
  return (
    <Command
      label="Restore"
      name={`Restore ${name}`}
      busy={change.isPending}
      refused={refused}
      onClick={() => change.mutate({ path: { name }, body: { removed: false } })}
    />
  );
}
