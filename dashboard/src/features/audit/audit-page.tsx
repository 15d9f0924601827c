import { Group, NativeSelect, Stack, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import type { AuditRecord } from "@/client";
import { listAuditInfiniteOptions } from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR, itemsOf } from "@/shared/api/pages";
import { timeZone } from "@/shared/format";
import { PageHeading } from "@/shared/page/heading";
import { LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { SearchField } from "@/shared/ui/search-field";
import { Moment } from "@/shared/ui/time";
import { changesOf, credentialText, outcomeText } from "./records";
import { type AuditSearch, TEXTS } from "./search";

const route = getRouteApi("/audit");
const PAGE = 100;
const HOUR_MS = 3_600_000;
const SPANS = [
  { value: "", label: "Any time" },
  { value: "1", label: "Last hour" },
  { value: "24", label: "Last day" },
  { value: "168", label: "Last week" },
  { value: "720", label: "Last 30 days" },
];
const LABELS = { user: "User", action: "Action", project: "Project", object: "Object" } as const;

/** Who changed what, and who was refused. */
export default function AuditPage() {
  useTitle("Audit");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useAudit(search);
  const zone = timeZone();
  const columns = useMemo(() => columnsIn(zone), [zone]);
  const records = itemsOf(list.data, ({ id }) => String(id));
  const change = (part: AuditSearch) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  return (
    <Stack gap="md">
      <PageHeading title="Audit" />
      <Group gap="xs">
        {TEXTS.map((key) => (
          <SearchField
            key={key}
            w={150}
            placeholder={LABELS[key]}
            aria-label={LABELS[key]}
            value={search[key] ?? ""}
            onSearch={(text) => change({ [key]: text.trim() || undefined })}
          />
        ))}
        <NativeSelect
          size="xs"
          aria-label="Time"
          data={SPANS}
          value={search.hours === undefined ? "" : String(search.hours)}
          onChange={({ currentTarget }) =>
            change({ hours: currentTarget.value === "" ? undefined : Number(currentTarget.value) })
          }
        />
      </Group>
      <LoadedTable
        list={list}
        rows={records}
        what="the audit log"
        empty={<Empty title="Nothing found">Change the filters.</Empty>}
        label="Audit log"
        columns={columns}
        rowKey={({ id }) => id}
      />
    </Stack>
  );
}

function useAudit({ hours, ...filters }: AuditSearch) {
  const since = useMemo(
    () => (hours === undefined ? undefined : new Date(Date.now() - hours * HOUR_MS).toISOString()),
    [hours],
  );
  return useInfiniteQuery({
    ...listAuditInfiniteOptions({ query: { limit: PAGE, ...filters, since } }),
    ...BY_CURSOR,
  });
}

const columnsIn = (zone: string): Column<AuditRecord>[] => [
  {
    id: "time",
    header: `Time (${zone})`,
    short: true,
    cell: ({ time }) => <Moment value={time} zone={zone} precision="seconds" />,
  },
  {
    id: "user",
    header: "User",
    cell: (record) => (
      <>
        {record.user ?? "unknown"}
        <p className="small dimmed">{credentialText(record)}</p>
      </>
    ),
  },
  { id: "action", header: "Action", short: true, cell: ({ action }) => <code>{action}</code> },
  { id: "object", header: "Object", cell: ({ object }) => object ?? "" },
  { id: "project", header: "Project", cell: ({ project }) => project ?? "" },
  {
    id: "outcome",
    header: "Outcome",
    cell: (record) => (
      <>
        <Text span inherit c={record.outcome === "done" ? undefined : "red"}>
          {outcomeText(record)}
        </Text>
        {[...changesOf(record), ...(record.detail === "" ? [] : [record.detail])].map((text) => (
          <p key={text} className="small dimmed">
            {text}
          </p>
        ))}
      </>
    ),
  },
];
