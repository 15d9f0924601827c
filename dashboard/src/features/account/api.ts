import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import {
  createTokenMutation,
  deleteTokenMutation,
  endSessionMutation,
  listSessionsInfiniteOptions,
  listTokensInfiniteOptions,
} from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR } from "@/shared/api/pages";
import { notifyProblem } from "@/shared/ui/notify";

const PAGE = 100;

export function useTokens() {
  return useInfiniteQuery({
    ...listTokensInfiniteOptions({ query: { limit: PAGE } }),
    ...BY_CURSOR,
  });
}

export function useTokenCommands() {
  const refresh = useRefresh("listTokens");
  return {
    create: useMutation({ ...createTokenMutation(), onSuccess: refresh }),
    revoke: useMutation({
      ...deleteTokenMutation(),
      onSuccess: refresh,
      onError: (error) => notifyProblem("Could not revoke the token", error),
    }),
  };
}

export function useSessions() {
  return useInfiniteQuery({
    ...listSessionsInfiniteOptions({ query: { limit: PAGE } }),
    ...BY_CURSOR,
  });
}

export function useEndSession() {
  return useMutation({
    ...endSessionMutation(),
    onSuccess: useRefresh("listSessions"),
    onError: (error) => notifyProblem("Could not end the session", error),
  });
}

function useRefresh(operation: string) {
  const client = useQueryClient();
  return () =>
    client.invalidateQueries({
      predicate: ({ queryKey }) => (queryKey[0] as { _id?: string })._id === operation,
    });
}
