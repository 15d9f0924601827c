import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useTitle } from "@/shared/title";
import { fenced } from "./chart-block";
import { ReportForm } from "./report-form";

const route = getRouteApi("/reports/new");

export default function NewReportPage() {
  useTitle("New report");
  const { chart } = route.useSearch();
  const navigate = route.useNavigate();
  const [added] = useState(chart && fenced(chart));
  // After a reload the chart is in the draft.
  useEffect(() => {
    if (chart !== undefined) void navigate({ search: {}, replace: true });
  }, [chart, navigate]);
  return (
    <ReportForm
      added={added}
      onDone={(id) =>
        void navigate(
          id === undefined
            ? { to: "/reports" }
            : { to: "/reports/$reportId", params: { reportId: id } },
        )
      }
    />
  );
}
