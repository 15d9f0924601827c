import { Stack } from "@mantine/core";
import type { ReportSummary } from "@/client";
import { itemsOf } from "@/shared/api/pages";
import { PageHeading } from "@/shared/page/heading";
import { LoadMore } from "@/shared/page/load-more";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Ago } from "@/shared/ui/time";
import { useReports } from "./api";

const COLUMNS: Column<ReportSummary>[] = [
  {
    id: "title",
    header: "Report",
    rowHeader: true,
    cell: ({ id, title }) => (
      <AnchorLink to="/reports/$reportId" params={{ reportId: id }} size="sm" fw={600}>
        {title}
      </AnchorLink>
    ),
  },
  {
    id: "updated",
    header: "Changed",
    width: "20%",
    right: true,
    cell: ({ updated_at }) => <Ago value={updated_at} />,
  },
  {
    id: "created",
    header: "Created",
    width: "20%",
    right: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
];

export default function ReportsPage() {
  useTitle("Reports");
  const list = useReports();
  const reports = itemsOf(list.data, ({ id }) => id);
  return (
    <Stack gap="md">
      <PageHeading title="Reports">
        <ButtonLink to="/reports/new" size="xs" leftSection={<PlusIcon />}>
          New report
        </ButtonLink>
      </PageHeading>
      <Pending query={list} what="the reports" height={240} />
      {list.data && reports.length === 0 ? (
        <Empty title="No reports yet">
          A report is Markdown with live charts of jobs, shared by the link of its page.{" "}
          <AnchorLink to="/compare">Compare</AnchorLink> has a button that begins one.
        </Empty>
      ) : null}
      {reports.length > 0 ? (
        <Table label="Reports" columns={COLUMNS} rows={reports} rowKey={({ id }) => id} />
      ) : null}
      <LoadMore list={list} />
    </Stack>
  );
}
