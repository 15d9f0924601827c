import { notifications } from "@mantine/notifications";
import { ApiError } from "../api/problem";

/** Shows that a command failed, and why, until it is closed. */
export function notifyProblem(what: string, error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  // The page repeats reads by itself, but never a command.
  const silent = error instanceof ApiError && error.status === 0;
  const detail = silent
    ? "The coordinator is unreachable. Running jobs continue; try again when it is back."
    : message;
  const title = error instanceof ApiError && error.status !== 0 ? `: ${error.title}` : "";
  notifications.show({ color: "red", title: `${what}${title}`, message: detail, autoClose: false });
}

export function notifyDone(message: string): void {
  notifications.show({ color: "teal", message, autoClose: 4000 });
}
