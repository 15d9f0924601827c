import { NativeSelect, Text } from "@mantine/core";
import type { LinkProps } from "@tanstack/react-router";
import type { JobGroup, JobGroupPage } from "@/client";
import { count } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { Empty } from "@/shared/ui/empty";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { GROUPS, type GroupBy, isGroupBy } from "./groups";

interface SelectProps {
  value: GroupBy | undefined;
  onChange: (by: GroupBy | undefined) => void;
}

export function GroupSelect({ value, onChange }: SelectProps) {
  return (
    <NativeSelect
      size="xs"
      aria-label="Group by"
      value={value ?? ""}
      onChange={({ currentTarget }) =>
        onChange(isGroupBy(currentTarget.value) ? currentTarget.value : undefined)
      }
      data={[
        { value: "", label: "Not grouped" },
        ...Object.entries(GROUPS).map(([by, title]) => ({
          value: by,
          label: `By ${title.toLowerCase()}`,
        })),
      ]}
    />
  );
}

interface Props {
  by: GroupBy;
  groups: JobGroupPage;
  /** The part of the URL that lists the jobs that match a term, too. */
  searchOf: (term: string) => LinkProps["search"];
}

/** How many of the jobs that match each group has; a group leads to the list of its jobs. */
export function JobGroups({ by, groups: { items, next_cursor }, searchOf }: Props) {
  if (items.length === 0) {
    return <Empty title="No job matches">Change the state filter, the query or the search.</Empty>;
  }
  const columns: Column<JobGroup>[] = [
    {
      id: "group",
      header: GROUPS[by],
      rowHeader: true,
      cell: (group) => (
        <AnchorLink to="/jobs" search={searchOf(group.query)} size="sm" fw={600}>
          <Name by={by} group={group} />
        </AnchorLink>
      ),
    },
    {
      id: "count",
      header: "Jobs",
      right: true,
      width: "120px",
      cell: (group) => count(group.count),
    },
  ];
  return (
    <>
      <Table
        label="Groups of jobs"
        columns={columns}
        rows={items}
        rowKey={({ value }) => value ?? ""}
      />
      {next_cursor ? (
        <Text size="xs" c="dimmed">
          The {count(items.length)} largest groups; a query leaves fewer.
        </Text>
      ) : null}
    </>
  );
}

function Name({ by, group: { value, name } }: { by: GroupBy; group: JobGroup }) {
  if (value === null) {
    return (
      <Text span inherit c="dimmed" fw={400}>
        no {GROUPS[by].toLowerCase()}
      </Text>
    );
  }
  return by === "state" ? <StateBadge state={value} /> : (name ?? value);
}
