import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  logInMutation,
  logOutMutation,
  readMeOptions,
  readMeQueryKey,
} from "@/client/@tanstack/react-query.gen";
import { ApiError } from "./problem";

/** The user of this browser, which changes only with a login. */
export function useMe() {
  return useQuery({ ...readMeOptions(), staleTime: Number.POSITIVE_INFINITY, retry: false });
}

export function isLoggedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

export function useLogIn(done: () => void) {
  const queries = useQueryClient();
  return useMutation({
    ...logInMutation(),
    onSuccess: async () => {
      await queries.resetQueries({ queryKey: readMeQueryKey() });
      done();
    },
  });
}

export function useLogOut() {
  const queries = useQueryClient();
  // Nothing of what this user has seen stays on the page.
  return useMutation({ ...logOutMutation(), onSuccess: () => queries.resetQueries() });
}
