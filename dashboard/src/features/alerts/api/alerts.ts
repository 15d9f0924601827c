import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import {
  changeAlertMutation,
  createAlertMutation,
  deleteAlertMutation,
  listAlertsInfiniteOptions,
  listDeliveriesInfiniteOptions,
  testAlertMutation,
} from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR } from "@/shared/api/pages";
import type { Alert } from "@/shared/api/types";
import { notifyDone, notifyProblem } from "@/shared/ui/notify";

const PAGE = 100;
const POLL_MS = 5000;
const LOG_POLL_MS = 2000;

/** The alerts, the oldest first. */
export function useAlerts() {
  return useInfiniteQuery({
    ...listAlertsInfiniteOptions({ query: { limit: PAGE } }),
    ...BY_CURSOR,
    refetchInterval: POLL_MS,
  });
}

/** The messages of an alert, the newest first. */
export function useDeliveries(id: string) {
  return useInfiniteQuery({
    ...listDeliveriesInfiniteOptions({ path: { alert_id: id }, query: { limit: 50 } }),
    ...BY_CURSOR,
    initialPageParam: { path: { alert_id: id } },
    refetchInterval: LOG_POLL_MS,
  });
}

/** Reads the alerts again after a change. */
function useRefresh() {
  const client = useQueryClient();
  return () =>
    client.invalidateQueries({
      predicate: ({ queryKey }) => (queryKey[0] as { _id?: string })._id === "listAlerts",
    });
}

export function useCreateAlert() {
  const refresh = useRefresh();
  return useMutation({ ...createAlertMutation(), onSuccess: refresh });
}

export function useChangeAlert() {
  const refresh = useRefresh();
  return useMutation({ ...changeAlertMutation(), onSuccess: refresh });
}

export function useAlertCommands({ id, name }: Alert) {
  const refresh = useRefresh();
  const path = { alert_id: id };
  const enable = useMutation({
    ...changeAlertMutation(),
    onSuccess: refresh,
    onError: (error) => notifyProblem(`Could not change ${name}`, error),
  });
  const test = useMutation({
    ...testAlertMutation(),
    onSuccess: () => notifyDone(`Test message of ${name} queued; its log shows the result.`),
    onError: (error) => notifyProblem(`Could not test ${name}`, error),
  });
  const remove = useMutation({
    ...deleteAlertMutation(),
    onSuccess: refresh,
    onError: (error) => notifyProblem(`Could not delete ${name}`, error),
  });
  return {
    enable: (enabled: boolean) => enable.mutate({ path, body: { enabled } }),
    test: () => test.mutate({ path }),
    remove: () => remove.mutate({ path }),
    busy: enable.isPending || test.isPending || remove.isPending,
  };
}
