import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  approveBrowserLoginMutation,
  decideDeviceLoginMutation,
  listLoginMethodsOptions,
  logInByPasswordMutation,
  logInMutation,
  logOutMutation,
  readDeviceLoginOptions,
  readMeOptions,
} from "@/client/@tanstack/react-query.gen";
import { forgetScope } from "../owners/scope";
import { ApiError } from "./problem";

/** The user of this browser, which changes only with a login. */
export function useMe() {
  return useQuery({ ...readMeOptions(), staleTime: Number.POSITIVE_INFINITY, retry: false });
}

export function isLoggedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}

export function useLogIn(done: () => void) {
  return useMutation({ ...logInMutation(), onSuccess: useLoggedIn(done) });
}

export function usePasswordLogin(done: () => void) {
  return useMutation({ ...logInByPasswordMutation(), onSuccess: useLoggedIn(done) });
}

function useLoggedIn(done: () => void) {
  const queries = useQueryClient();
  return async () => {
    // Another user may have been here before: nothing that they saw is shown to this one.
    await queries.resetQueries();
    done();
  };
}

/** Ways to log in beside a link. */
export function useLoginMethods() {
  return useQuery({ ...listLoginMethodsOptions(), staleTime: 60_000, retry: false });
}

/** The login of commands that waits under a code; none is asked for without a code. */
export function useDeviceRequest(userCode: string) {
  return useQuery({
    ...readDeviceLoginOptions({ path: { user_code: userCode } }),
    enabled: userCode !== "",
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useDecideDevice() {
  return useMutation(decideDeviceLoginMutation());
}

export function useApproveBrowser() {
  return useMutation(approveBrowserLoginMutation());
}

export function useLogOut() {
  const queries = useQueryClient();
  return useMutation({
    ...logOutMutation(),
    onSuccess: () => {
      forgetScope();
      // Nothing of what this user has seen stays on the page.
      return queries.resetQueries();
    },
  });
}
