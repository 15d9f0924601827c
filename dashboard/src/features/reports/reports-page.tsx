import { Stack } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import type { ReportSummary } from "@/client";
import { itemsOf } from "@/shared/api/pages";
import { useRights } from "@/shared/api/rights";
import { Owner } from "@/shared/owners/owner";
import { isNarrow } from "@/shared/owners/scope";
import { ScopeSwitch } from "@/shared/owners/scope-switch";
import { PageHeading } from "@/shared/page/heading";
import { LoadMore } from "@/shared/page/load-more";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
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
  { id: "owner", header: "Owner", width: "15%", cell: (report) => <Owner of={report} /> },
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

const route = getRouteApi("/reports");

export default function ReportsPage() {
  useTitle("Reports");
  const scope = route.useSearch();
  const navigate = route.useNavigate();
  const list = useReports(scope);
  const rights = useRights();
  const reports = itemsOf(list.data, ({ id }) => id);
  return (
    <Stack gap="md">
      <PageHeading title="Reports">
        <Refusable refused={rights.submit} label="New report" icon={<PlusIcon />}>
          <ButtonLink to="/reports/new" size="xs" leftSection={<PlusIcon />}>
            New report
          </ButtonLink>
        </Refusable>
      </PageHeading>
      <ScopeSwitch scope={scope} onChange={(search) => void navigate({ search })} />
      <Pending query={list} what="the reports" height={240} />
      {list.data && reports.length === 0 ? (
        <Empty title={isNarrow(scope) ? "No report matches" : "No reports yet"}>
          A report is Markdown with live charts of jobs, shared by the link of its page.{" "}
          <AnchorLink to="/compare" underline="always">
            Compare
          </AnchorLink>{" "}
          has a button that begins one.
        </Empty>
      ) : null}
      {reports.length > 0 ? (
        <Table label="Reports" columns={COLUMNS} rows={reports} rowKey={({ id }) => id} />
      ) : null}
      <LoadMore list={list} />
    </Stack>
  );
}
