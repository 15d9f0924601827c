import { Stack, Text, Title } from "@mantine/core";
import type { AccountWaits, Replayed, Waits, WhatIf } from "@/client";
import { count, duration, percent } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
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
    ...FIGURES.map(([key, name]) => ({
      name,
      recorded: duration(recorded?.[key]),
      before: duration(before.waits?.[key]),
      after: duration(after.waits?.[key]),
    })),
    {
      name: "Never started",
      recorded: "",
      before: count(before.never_started),
      after: count(after.never_started),
    },
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
      {before.waits && after.waits ? <Bars before={before.waits} after={after.waits} /> : null}
      <Table label="Waits" columns={COLUMNS} rows={lines} rowKey={({ name }) => name} />
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
        paused before they ran are left out. The nearer <em>Replayed</em> comes to <em>Recorded</em>
        , the further <em>With changes</em> can be trusted. Assumed: {found.assumptions.join("; ")}.
      </Text>
    </Stack>
  );
}

function Bars({ before, after }: { before: Waits; after: Waits }) {
  const longest = Math.max(before.max, after.max) || 1;
  const sides = [
    ["now", before],
    ["with changes", after],
  ] as const;
  return (
    <figure className={`app-card ${classes.chart}`}>
      <Title order={2} size="h5" component="figcaption">
        Waits now and with changes
      </Title>
      {FIGURES.map(([key, name]) => (
        <div key={key} className={classes.figure}>
          <Text size="sm">{name}</Text>
          <div>
            {sides.map(([side, waits]) => (
              <div key={side} className={classes.bar} data-side={side}>
                <span style={{ width: `${(60 * waits[key]) / longest}%` }} />
                <Text size="xs">
                  {duration(waits[key])} {side}
                </Text>
              </div>
            ))}
          </div>
        </div>
      ))}
    </figure>
  );
}

function devices({ devices: kinds }: Replayed): string {
  const names: Record<string, string> = { cuda: "GPUs", cpu: "CPU slots" };
  const texts = Object.entries(kinds).map(([kind, n]) => `${count(n)} ${names[kind] ?? kind}`);
  return texts.join(", ") || "none";
}
