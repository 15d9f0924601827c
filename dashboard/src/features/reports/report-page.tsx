import { Group, Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { ApiError } from "@/shared/api/problem";
import { useRights } from "@/shared/api/rights";
import type { Report } from "@/shared/api/types";
import { CopyButton } from "@/shared/copy/copy-button";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { PageHeading } from "@/shared/page/heading";
import { useTitle } from "@/shared/title";
import { NotFound } from "@/shared/ui/empty";
import { TrashIcon } from "@/shared/ui/icons";
import { ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
import { Ago } from "@/shared/ui/time";
import { useReport, useReportCommands } from "./api";
import { ReportBody } from "./report-body";
import { ReportForm } from "./report-form";

const route = getRouteApi("/reports/$reportId");

export default function ReportPage() {
  const { reportId } = route.useParams();
  const { edit } = route.useSearch();
  const navigate = route.useNavigate();
  const query = useReport(reportId);
  const report = query.data;
  useTitle(report?.title ?? "Report");
  const isGone = query.error instanceof ApiError && query.error.status === 404;
  // What is being written stays.
  if (isGone && !(edit && report)) {
    return <NotFound what="report" id={reportId} />;
  }
  if (report === undefined) return <Pending query={query} what="the report" height={420} />;
  if (!edit) return <Reading report={report} />;
  return <ReportForm key={reportId} report={report} onDone={() => void navigate({ search: {} })} />;
}

function Reading({ report }: { report: Report }) {
  const { id, title, text, user, project, updated_at } = report;
  const rights = useRights();
  const navigate = route.useNavigate();
  const { remove } = useReportCommands();
  return (
    <Stack gap="md">
      <PageHeading title={title}>
        <Group gap="xs">
          <Text size="xs" c="dimmed">
            {user === null ? "" : `by ${user}, `}project {project}, changed{" "}
            <Ago value={updated_at} />
          </Text>
          <CopyButton label="Copy link" value={`${window.location.origin}/reports/${id}`} />
          <Refusable refused={rights.inProject(project, "member")} label="Edit">
            <ButtonLink
              size="xs"
              variant="default"
              to="/reports/$reportId"
              params={{ reportId: id }}
              search={{ edit: true }}
            >
              Edit
            </ButtonLink>
          </Refusable>
          <ConfirmedCommand
            label="Delete"
            icon={<TrashIcon />}
            busy={remove.isPending}
            refused={rights.command(report)}
            title={`Delete ${title}?`}
            text="This deletes it for all members of its project. Its jobs stay."
            action="Delete the report"
            onConfirm={() =>
              remove.mutate(
                { path: { report_id: id } },
                { onSuccess: () => void navigate({ to: "/reports" }) },
              )
            }
          />
        </Group>
      </PageHeading>
      <ReportBody text={text} />
    </Stack>
  );
}
