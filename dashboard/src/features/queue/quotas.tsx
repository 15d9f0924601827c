import { Text, Title } from "@mantine/core";
import type { Quota } from "@/shared/api/types";
import { count, plural } from "@/shared/format";
import { userTerm } from "@/shared/owners/scope";
import { type Column, Table } from "@/shared/table/table";
import { AnchorLink } from "@/shared/ui/links";
import { Meter } from "@/shared/ui/meter";
import { Pending } from "@/shared/ui/problem";
import { type Quotas, useQuotas } from "./api/queue";
import classes from "./quotas.module.css";

const COLUMNS: Column<Quota>[] = [
  {
    id: "owner",
    header: "Owner",
    className: classes.name,
    cell: ({ kind, name }) => (
      <>
        <Text span size="xs" c="dimmed">
          {kind}
        </Text>{" "}
        {kind === "project" ? (
          <AnchorLink to="/projects/$project" params={{ project: name }} inherit>
            {name}
          </AnchorLink>
        ) : (
          <AnchorLink to="/jobs" search={{ query: userTerm(name) }} inherit>
            {name}
          </AnchorLink>
        )}
      </>
    ),
  },
  { id: "used", header: "Devices in use", cell: (quota) => <Usage quota={quota} /> },
  {
    id: "waiting",
    header: "Waiting jobs",
    right: true,
    className: classes.waiting,
    cell: (quota) => count(quota.waiting),
  },
];

/** The devices that projects and users hold, and their limits; hidden while there are none. */
export function QuotaSection() {
  const quotas = useQuotas();
  if (quotas.error) return <Pending query={quotas} what="the quotas" />;
  if (!quotas.data || quotas.data.items.length === 0) return null;
  return (
    <section aria-labelledby="quotas">
      <Title order={2} size="h4" id="quotas" mb={4}>
        Projects and users
      </Title>
      <Text size="xs" c="dimmed" mb="xs">
        {defaultLimits(quotas.data.others)}
      </Text>
      <Table
        label="Projects and users"
        columns={COLUMNS}
        rows={quotas.data.items}
        rowKey={({ kind, name }) => `${kind} ${name}`}
        className={classes.quotas}
      />
    </section>
  );
}

function Usage({ quota: { kind, name, limit, used } }: { quota: Quota }) {
  if (limit === null) {
    return (
      <Text span size="xs">
        {plural(used, "device")}, no limit
      </Text>
    );
  }
  return (
    <Meter
      label={`Quota of ${kind} ${name}`}
      value={limit > 0 ? (100 * used) / limit : 100}
      text={`${count(used)} of ${count(limit)}`}
      warnAt={100}
    />
  );
}

/** The limits of the projects and users that are not listed. */
export function defaultLimits({ project, user }: Quotas["others"]): string {
  const limits = [
    project === null ? "" : `Every other project: at most ${plural(project, "device")}.`,
    user === null ? "" : `Every other user: at most ${plural(user, "device")}.`,
  ].filter((text) => text !== "");
  return limits.join(" ") || "Others have no quota.";
}
