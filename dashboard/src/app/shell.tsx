import {
  ActionIcon,
  AppShell,
  Container,
  Group,
  Text,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { Link, Outlet } from "@tanstack/react-router";
import { useSummary } from "@/shared/api/read-summary";
import { plural } from "@/shared/format";
import { MoonIcon, SunIcon } from "@/shared/ui/icons";
import classes from "./shell.module.css";

export function Shell() {
  return (
    <AppShell header={{ height: 52 }} padding="md">
      <a className={classes.skip} href="#main">
        Skip to the content
      </a>
      <AppShell.Header className={classes.header ?? ""}>
        <Container size={1440} h="100%">
          <Group h="100%" gap="lg" wrap="nowrap">
            <Link to="/jobs" className={classes.brand} aria-label="Trainhall, jobs">
              <img src="/favicon.svg" width={24} height={24} alt="" />
              <span className={classes.word}>Trainhall</span>
            </Link>
            <nav className={classes.nav} aria-label="Main">
              <Link to="/jobs" className={classes.link} activeOptions={{ includeSearch: false }}>
                Jobs
              </Link>
              <Link to="/nodes" className={classes.link}>
                Nodes
              </Link>
              <Link to="/new" className={classes.link} activeOptions={{ includeSearch: false }}>
                New job
              </Link>
            </nav>
            <Group gap="sm" ml="auto" wrap="nowrap">
              <ClusterUse />
              <ColorScheme />
            </Group>
          </Group>
        </Container>
      </AppShell.Header>
      <AppShell.Main id="main">
        <Container size={1408} px={0}>
          <Outlet />
        </Container>
      </AppShell.Main>
    </AppShell>
  );
}

function ClusterUse() {
  const { data, isError } = useSummary();
  if (isError) {
    return (
      <Text size="xs" c="orange" role="status">
        coordinator does not answer
      </Text>
    );
  }
  if (!data) return null;
  return (
    <Text size="xs" c="dimmed" className="numbers" visibleFrom="sm">
      {plural(data.nodes, "node")} · {data.devices_busy} of {plural(data.devices, "device")} busy
    </Text>
  );
}

function ColorScheme() {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const other = scheme === "dark" ? "light" : "dark";
  return (
    <Tooltip label={`Use ${other} colours`}>
      <ActionIcon
        variant="subtle"
        color="gray"
        size="lg"
        aria-label={`Use ${other} colours`}
        onClick={() => setColorScheme(other)}
      >
        {scheme === "dark" ? <SunIcon /> : <MoonIcon />}
      </ActionIcon>
    </Tooltip>
  );
}
