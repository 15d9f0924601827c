import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  changeReportMutation,
  createReportMutation,
  deleteReportMutation,
  getReportOptions,
  getReportQueryKey,
  listReportsInfiniteOptions,
} from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR } from "@/shared/api/pages";
import type { Report } from "@/shared/api/types";
import { ownerParameters, type Scope } from "@/shared/owners/scope";
import { notifyProblem } from "@/shared/ui/notify";

const PAGE = 100;
const POLL_MS = 10_000;

/** The reports of a scope, the newest first. */
export function useReports(scope: Scope) {
  return useInfiniteQuery({
    ...listReportsInfiniteOptions({ query: { limit: PAGE, ...ownerParameters(scope) } }),
    ...BY_CURSOR,
    refetchInterval: POLL_MS,
  });
}

export function useReport(id: string) {
  return useQuery({
    ...getReportOptions({ path: { report_id: id } }),
    refetchInterval: POLL_MS,
  });
}

/** Creates, changes and deletes reports. */
export function useReportCommands() {
  const client = useQueryClient();
  const refresh = () =>
    client.invalidateQueries({
      predicate: ({ queryKey }) => (queryKey[0] as { _id?: string })._id === "listReports",
    });
  const onSuccess = (report: Report) => {
    client.setQueryData(getReportQueryKey({ path: { report_id: report.id } }), report);
    return refresh();
  };
  return {
    create: useMutation({ ...createReportMutation(), onSuccess }),
    change: useMutation({
      ...changeReportMutation(),
      onSuccess,
      // A conflict: somebody else's version is the newest.
      onError: (_error, { path }) =>
        client.invalidateQueries({ queryKey: getReportQueryKey({ path }) }),
    }),
    remove: useMutation({
      ...deleteReportMutation(),
      onSuccess: refresh,
      onError: (error) => notifyProblem("Could not delete the report", error),
    }),
  };
}
