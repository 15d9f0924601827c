import { Alert, List, Stack, Text, Title } from "@mantine/core";
import type { CSSProperties } from "react";
import type { AccountWaits, Replayed, WhatIf } from "@/client";
import { count, duration, percent, plural } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { LinkedText } from "@/shared/ui/linked-text";
import classes from "./result.module.css";

const FIGURES = [
  ["mean", "Mean wait"],
  ["median", "Median wait"],
  ["p95", "95 % wait"],
  ["max", "Longest wait"],
] as const;

interface Line {
  name: string;
  recorded: string;
  before: string;
  after: string;
}

const COLUMNS: Column<Line>[] = [
  { id: "name", header: "Figure", rowHeader: true, cell: ({ name }) => name },
  { id: "recorded", header: "Recorded", right: true, cell: ({ recorded }) => recorded },
  { id: "before", header: "Replayed", right: true, cell: ({ before }) => before },
  { id: "after", header: "With changes", right: true, cell: ({ after }) => after },
];
const ACCOUNT_COLUMNS: Column<AccountWaits>[] = [
  { id: "name", header: "Account", rowHeader: true, cell: ({ kind, name }) => `${kind} ${name}` },
  { id: "jobs", header: "Jobs", right: true, cell: ({ jobs }) => count(jobs) },
  {
    id: "never",
    header: "Never start",
    right: true,
    cell: ({ never_started_before: before, never_started_after: after }) =>
      before === after ? count(before) : `${count(before)} → ${count(after)}`,
  },
  {
    id: "before",
    header: "Mean wait now",
    right: true,
    cell: ({ before }) => duration(before?.mean),
  },
  { id: "after", header: "With changes", right: true, cell: ({ after }) => duration(after?.mean) },
];

/** Waits as they are and with the changes, as a chart and as tables. */
export function Result({ found }: { found: WhatIf }) {
  const { recorded, before, after, accounts } = found;
  const lines = [
    { name: "Devices", recorded: "", before: devices(before), after: devices(after) },
    {
      name: "Never start",
      recorded: "",
      before: count(before.never_started),
      after: count(after.never_started),
    },
    ...FIGURES.map(([key, name]) => ({
      name,
      recorded: duration(recorded?.[key]),
      before: duration(before.waits?.[key]),
      after: duration(after.waits?.[key]),
    })),
    ...(found.never_ran === 0
      ? []
      : [
          {
            name: "First starts of jobs that never ran",
            recorded: "",
            before: count(before.first_starts),
            after: count(after.first_starts),
          },
        ]),
    {
      name: "Utilization",
      recorded: "",
      before: percent(before.utilization),
      after: percent(after.utilization),
    },
  ];
  return (
    <Stack gap="md">
      {found.warning === null ? null : (
        <Alert color="red" title="Some jobs would never start">
          {found.warning}
        </Alert>
      )}
      <Bars found={found} />
      <Table label="Waits" columns={COLUMNS} rows={lines} rowKey={({ name }) => name} />
      <Causes side={before} title="Never start now" />
      <Causes side={after} title="Never start with changes" />
      {accounts.length > 0 ? (
        <Table
          label="Waits by project and user"
          columns={ACCOUNT_COLUMNS}
          rows={accounts}
          rowKey={({ kind, name }) => `${kind} ${name}`}
        />
      ) : null}
      <Text size="xs" c="dimmed">
        {count(found.jobs)} jobs of {found.days} days were replayed
        {found.is_cut ? ", the newest of more" : ""}; {count(found.left_out)} that were cancelled or
        paused before they ran are left out. Waits are those of the {plural(found.compared, "job")}{" "}
        that {found.compared === 1 ? "starts" : "start"} both without and with the changes. The
        nearer <em>Replayed</em> comes to <em>Recorded</em>, the further <em>With changes</em> can
        be trusted. Assumed: {found.assumptions.join("; ")}.
      </Text>
    </Stack>
  );
}

/** Jobs that never start, on a scale of all jobs, and waits, on a scale of the longest. */
function Bars({ found: { jobs, before, after } }: { found: WhatIf }) {
  const waits = before.waits && after.waits ? ([before.waits, after.waits] as const) : null;
  const longest = waits ? Math.max(waits[0].max, waits[1].max) || 1 : 1;
  const never = [before.never_started, after.never_started] as const;
  if (waits === null && Math.max(...never) === 0) return null;
  return (
    <figure className={`app-card ${classes.chart}`}>
      <Title order={2} size="h5" component="figcaption">
        Waits now and with changes
      </Title>
      <Pair
        name="Never start"
        shares={[never[0] / (jobs || 1), never[1] / (jobs || 1)]}
        texts={[`${count(never[0])} of ${plural(jobs, "job")}`, count(never[1])]}
        isLoss
      />
      {waits
        ? FIGURES.map(([key, name]) => (
            <Pair
              key={key}
              name={name}
              shares={[waits[0][key] / longest, waits[1][key] / longest]}
              texts={[duration(waits[0][key]), duration(waits[1][key])]}
            />
          ))
        : null}
    </figure>
  );
}

interface PairProps {
  name: string;
  /** Lengths of the bars, 0 to 1. */
  shares: [now: number, changed: number];
  texts: [now: string, changed: string];
  /** Whether the bars stand for jobs that are lost. */
  isLoss?: boolean;
}

function Pair({ name, shares, texts, isLoss = false }: PairProps) {
  const sides = [
    ["now", shares[0], texts[0]],
    ["with changes", shares[1], texts[1]],
  ] as const;
  return (
    <div className={classes.figure}>
      <Text size="sm">{name}</Text>
      <div>
        {sides.map(([side, share, text]) => (
          <div key={side} className={classes.bar} data-side={side} data-loss={isLoss || undefined}>
            <span style={{ "--share": share } as CSSProperties} />
            <Text size="xs">
              {text} {side}
            </Text>
          </div>
        ))}
      </div>
    </div>
  );
}

/** Why jobs never start on one side. */
function Causes({ side: { causes, never_started }, title }: { side: Replayed; title: string }) {
  if (causes.length === 0) return null;
  const others = never_started - causes.reduce((sum, { jobs }) => sum + jobs, 0);
  return (
    <div>
      <Title order={2} size="h5" mb={4}>
        {title}
      </Title>
      <List size="sm">
        {causes.map(({ reason, jobs }) => (
          <List.Item key={reason}>
            {plural(jobs, "job")}: <LinkedText text={reason} />
          </List.Item>
        ))}
        {others > 0 ? <List.Item>{count(others)} more for other reasons</List.Item> : null}
      </List>
    </div>
  );
}

function devices({ devices: kinds }: Replayed): string {
  const names: Record<string, string> = { cuda: "GPUs", cpu: "CPU slots" };
  const texts = Object.entries(kinds).map(([kind, n]) => `${count(n)} ${names[kind] ?? kind}`);
  return texts.join(", ") || "none";
}
