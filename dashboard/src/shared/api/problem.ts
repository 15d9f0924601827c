import type { FieldProblem } from "@/client";

export type { FieldProblem } from "@/client";

/** Problem details (RFC 9457) as an exception. `status` 0: no response. */
export class ApiError extends Error {
  readonly status: number;
  readonly title: string;
  readonly fields: FieldProblem[];

  constructor(status: number, title: string, detail: string, fields: FieldProblem[] = []) {
    super(detail || title);
    this.name = "ApiError";
    this.status = status;
    this.title = title;
    this.fields = fields;
  }

  /** The error of a request without an answer; an aborted one stays an AbortError. */
  static unreachable(cause: unknown): unknown {
    if (isAbort(cause)) return cause;
    return new ApiError(
      0,
      "The coordinator is unreachable",
      "The coordinator is unreachable. Running jobs continue; this page retries automatically.",
    );
  }

  static of(response: Response, body: unknown): ApiError {
    const problem = isRecord(body) ? body : {};
    const title = text(problem.title) || response.statusText || `Status ${response.status}`;
    const detail = text(problem.detail) || (typeof body === "string" ? body.slice(0, 300) : "");
    // A gateway that cannot reach the coordinator returns these.
    if ([502, 503, 504].includes(response.status) && !isRecord(body)) {
      return new ApiError(0, "The coordinator is unreachable", detail);
    }
    return new ApiError(response.status, title, detail, fieldProblems(problem.errors));
  }
}

/** A plan whose code is stored: it was uploaded before. `field`: where the spec names the code. */
export function withCode<Plan extends { code_missing: boolean }>(plan: Plan, field: string): Plan {
  if (!plan.code_missing) return plan;
  const message =
    "no code with this SHA-256 was uploaded; the page of a new job and the `trainhall` command upload a folder, and a copy of a job has its code";
  throw new ApiError(422, "Missing code", `${field}: ${message}`, [
    { field, message, value: null },
  ]);
}

/** Whether the same request would be refused again, so that a retry is of no use. */
export function isRefused(error: unknown): boolean {
  if (!(error instanceof ApiError)) return false;
  return error.status >= 400 && error.status < 500 && ![408, 425, 429].includes(error.status);
}

/** Whether the user's roles are too low, so that only another role helps. */
export function isForbidden(error: unknown): boolean {
  return error instanceof ApiError && error.status === 403;
}

function fieldProblems(errors: unknown): FieldProblem[] {
  if (!Array.isArray(errors)) return [];
  return errors.filter(isRecord).map((error) => ({
    field: text(error.field),
    message: text(error.message) || text(error.detail),
    value: error.value === null || error.value === undefined ? null : String(error.value),
    ...(typeof error.position === "number" ? { position: error.position } : {}),
  }));
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
