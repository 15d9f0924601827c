import {
  ActionIcon,
  AppShell,
  Container,
  Group,
  Kbd,
  Menu,
  Text,
  Tooltip,
  useMantineColorScheme,
} from "@mantine/core";
import { Link, Outlet, useRouter } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { useHealth, useSummary } from "@/shared/api/cluster";
import { plural } from "@/shared/format";
import { useNotifications } from "@/shared/live/notifications";
import { useRememberedScope } from "@/shared/owners/scope";
import { IconButton } from "@/shared/ui/icon-button";
import { CheckIcon, HelpIcon, MoonIcon, ScreenIcon, SearchIcon, SunIcon } from "@/shared/ui/icons";
import { MAIN_PAGES } from "./pages";
import { Palette } from "./palette";
import { ProfileMenu } from "./profile-menu";
import classes from "./shell.module.css";
import { ShortcutsHelp, useShortcuts } from "./shortcuts";

export function Shell() {
  const router = useRouter();
  const openPath = useCallback((path: string) => router.history.push(path), [router]);
  useNotifications(openPath);
  const scope = useRememberedScope();
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  const close = () => setOpen(null);
  const openHelp = () => setOpen("help");
  useShortcuts(() => setOpen("palette"), openHelp);
  return (
    <AppShell header={{ height: { base: 88, md: 52 } }} padding="md">
      <a className={classes.skip} href="#main">
        Skip to content
      </a>
      <AppShell.Header className={classes.header ?? ""}>
        <Container size={1440} h="100%">
          <div className={classes.row}>
            <Link to="/jobs" search={scope} className={classes.brand} aria-label="Trainhall, jobs">
              <img src="/favicon.svg" width={24} height={24} alt="" />
              <span className={classes.word}>Trainhall</span>
            </Link>
            <nav className={classes.nav} aria-label="Main">
              {MAIN_PAGES.map(({ label, to, ...page }) => (
                <Link
                  key={to}
                  to={to}
                  search={"scoped" in page ? scope : {}}
                  className={classes.link}
                  activeOptions={{ includeSearch: false }}
                >
                  {label}
                </Link>
              ))}
            </nav>
            <Group gap="sm" ml="auto" wrap="nowrap" className={classes.tools ?? ""}>
              <Simulated />
              <ClusterUse />
              <IconButton label="Go to (Ctrl K)" size="lg" onClick={() => setOpen("palette")}>
                <SearchIcon />
              </IconButton>
              <HelpMenu onShortcuts={openHelp} />
              <ThemeMenu />
              <ProfileMenu />
            </Group>
          </div>
        </Container>
      </AppShell.Header>
      <Palette opened={open === "palette"} onClose={close} onHelp={openHelp} />
      <ShortcutsHelp opened={open === "help"} onClose={close} />
      <AppShell.Main id="main">
        <Container size={1408} px={0}>
          <Outlet />
        </Container>
      </AppShell.Main>
    </AppShell>
  );
}

/** Marks mock mode, so that nobody takes it for a real cluster. */
function Simulated() {
  if (!useHealth().data?.simulated) return null;
  return (
    <Tooltip
      label="Mock mode: nodes, jobs and metrics are simulated. Nothing runs."
      multiline
      maw={280}
    >
      <span className={classes.simulated}>simulated</span>
    </Tooltip>
  );
}

function ClusterUse() {
  const { data, isError } = useSummary();
  if (isError) {
    return (
      <Text size="xs" c="orange" role="status">
        coordinator unreachable
      </Text>
    );
  }
  if (!data) return null;
  return (
    <Text size="xs" c="dimmed" className="numbers" visibleFrom="lg">
      {plural(data.nodes, "node")} · {data.devices_busy} of {plural(data.devices, "device")} busy
    </Text>
  );
}

const SCHEMES = [
  { value: "auto", label: "System", icon: <ScreenIcon /> },
  { value: "light", label: "Light", icon: <SunIcon /> },
  { value: "dark", label: "Dark", icon: <MoonIcon /> },
] as const;

/** Links to the documentation that the coordinator serves, also offline. */
function HelpMenu({ onShortcuts }: { onShortcuts: () => void }) {
  const health = useHealth();
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label="Help">
          <HelpIcon />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Trainhall {health.data?.version}</Menu.Label>
        <Menu.Item component="a" href="/docs" target="_blank">
          REST API reference
        </Menu.Item>
        <Menu.Item onClick={onShortcuts} rightSection={<Kbd size="xs">?</Kbd>}>
          Keyboard shortcuts
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

/** The theme, which the browser keeps. */
function ThemeMenu() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const icon = SCHEMES.find(({ value }) => value === colorScheme)?.icon;
  return (
    <Menu position="bottom-end" width={180}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label="Theme">
          {icon}
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Theme</Menu.Label>
        {SCHEMES.map(({ value, label, icon }) => (
          <Menu.Item
            key={value}
            leftSection={icon}
            rightSection={value === colorScheme ? <CheckIcon /> : null}
            aria-current={value === colorScheme}
            onClick={() => setColorScheme(value)}
          >
            {label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
