import { Breadcrumbs, Group, Progress, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";
import { CopyIconButton } from "../copy/copy-button";
import { type Owned, useRememberedScope, userTerm } from "../owners/scope";
import { LinkedText } from "../ui/linked-text";
import { AnchorLink } from "../ui/links";
import { StateBadge } from "../ui/state-badge";
import { IdText } from "./id-text";
import classes from "./run-header.module.css";

interface Props {
  what: "job" | "experiment";
  run: { id: string; name: string; state: string };
  /** Beside the state. */
  status?: ReactNode;
  commands: ReactNode;
}

/** The top of the page of a job or an experiment: where it is listed, its id, name and state. */
export function RunTitle({ what, run: { id, name, state }, status, commands }: Props) {
  const scope = useRememberedScope();
  return (
    <>
      <Breadcrumbs separator="/" mb={6}>
        <AnchorLink to={`/${what}s`} search={scope} size="xs">
          {what === "job" ? "Jobs" : "Experiments"}
        </AnchorLink>
        <Group gap={2}>
          <IdText id={id} />
          <CopyIconButton value={id} label={`Copy ${what} id`} />
        </Group>
      </Breadcrumbs>
      <Group justify="space-between" align="flex-start" gap="md">
        <Group gap="sm" className={classes.titles ?? ""}>
          <Title order={1} size="h3" className={classes.wrapping ?? ""}>
            {name}
          </Title>
          <span data-testid={`${what}-state`}>
            <StateBadge state={state} size="md" />
          </span>
          {status}
        </Group>
        {commands}
      </Group>
    </>
  );
}

export function RunReason({ text }: { text: string }) {
  return (
    <Text size="sm" mt={8} className={classes.wrapping ?? ""}>
      <LinkedText text={text} />
    </Text>
  );
}

/** Short facts, each in a `span`, in one line. */
export function RunFacts({ children }: { children: ReactNode }) {
  return (
    <Text size="xs" c="dimmed" className={classes.facts ?? ""}>
      {children}
    </Text>
  );
}

/** Owner and project of a run; each leads to the jobs that share it. */
export function OwnerFacts({ of: { user, project } }: { of: Owned }) {
  return (
    <>
      {user === null ? null : (
        <span>
          <AnchorLink to="/jobs" search={{ query: userTerm(user) }} size="xs">
            {user}
          </AnchorLink>
        </span>
      )}
      <span>
        <AnchorLink to="/jobs" search={{ project }} size="xs">
          project {project}
        </AnchorLink>
      </span>
    </>
  );
}

interface ProgressProps {
  state: string;
  percent: number;
  /** Below the bar. */
  children: ReactNode;
}

export function RunProgress({ state, percent, children }: ProgressProps) {
  return (
    <div className={classes.progress}>
      <Progress
        value={percent}
        size="md"
        radius="sm"
        aria-label="Progress"
        color={state === "failed" ? "red" : state === "completed" ? "teal" : undefined}
      />
      {children}
    </div>
  );
}
