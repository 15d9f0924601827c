import { notifications } from "@mantine/notifications";
import { ApiError } from "../api/problem";

/** Tell that a command failed, and why; it stays until it is closed. */
export function notifyProblem(what: string, error: unknown): void {
  const told = error instanceof Error ? error.message : String(error);
  // What the page reads it asks for again by itself, but no command is given twice.
  const silent = error instanceof ApiError && error.status === 0;
  const detail = silent
    ? "The coordinator does not answer. Jobs that run go on without it; try again once it is back."
    : told;
  const title = error instanceof ApiError && error.status !== 0 ? `: ${error.title}` : "";
  notifications.show({ color: "red", title: `${what}${title}`, message: detail, autoClose: false });
}

export function notifyDone(message: string): void {
  notifications.show({ color: "teal", message, autoClose: 4000 });
}
