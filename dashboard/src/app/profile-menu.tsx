import { ActionIcon, Menu, Text } from "@mantine/core";
import { useLogOut, useMe } from "@/shared/api/login";
import { useRights } from "@/shared/api/rights";
import { UserIcon } from "@/shared/ui/icons";
import { MenuLink } from "@/shared/ui/links";

const MOST_PROJECTS = 8;

/** The user with their roles, the pages about accounts, and the way out of a session; nothing where
 * no login is needed. */
export function ProfileMenu() {
  const me = useMe().data;
  const { noProject } = useRights();
  const logOut = useLogOut();
  if (me === undefined || me.how === "none") return null;
  const { user, admin, projects, how } = me;
  return (
    <Menu position="bottom-end" width={260}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label={`User ${user}`}>
          <UserIcon />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown mah="80vh" style={{ overflowY: "auto" }}>
        <Menu.Label>
          {user}
          {admin ? ", admin" : ""}
        </Menu.Label>
        {noProject === null ? null : (
          <Text size="xs" c="dimmed" px="sm" pb={4}>
            {noProject}
          </Text>
        )}
        {projects.slice(0, MOST_PROJECTS).map(({ name, role }) => (
          <MenuLink
            key={name}
            to="/projects/$project"
            params={{ project: name }}
            rightSection={
              <Text size="xs" c="dimmed">
                {admin ? "" : role}
              </Text>
            }
          >
            {name}
          </MenuLink>
        ))}
        <Menu.Divider />
        <MenuLink to="/projects">Projects</MenuLink>
        <MenuLink to="/users">Users and groups</MenuLink>
        {admin || projects.some(({ role }) => role === "maintainer") ? (
          <MenuLink to="/audit">Audit</MenuLink>
        ) : null}
        <Menu.Divider />
        <MenuLink to="/tokens">API tokens</MenuLink>
        <MenuLink to="/secrets">Your secrets</MenuLink>
        <MenuLink to="/sessions">Sessions</MenuLink>
        {how === "session" ? (
          <Menu.Item onClick={() => logOut.mutate({})}>Log out</Menu.Item>
        ) : null}
      </Menu.Dropdown>
    </Menu>
  );
}
