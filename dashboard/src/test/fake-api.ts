import "@/shared/api/client";
import { vi } from "vitest";

type Answer = unknown | ((request: Request) => Response | unknown);

/** Answers requests from a table of "METHOD /path" in place of a coordinator; records what was asked. */
export function fakeApi(answers: Record<string, Answer>): Request[] {
  const asked: Request[] = [];
  vi.stubGlobal("fetch", async (input: RequestInfo | URL, init?: RequestInit) => {
    const request = new Request(input, init);
    asked.push(request.clone());
    const path = new URL(request.url).pathname.replace("/api/v1", "");
    const answer = answers[`${request.method} ${path}`];
    if (answer === undefined) return problem(404, "Not found", path);
    const value = typeof answer === "function" ? await answer(request) : answer;
    return value instanceof Response ? value : json(value);
  });
  return asked;
}

export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), {
    status,
    headers: { "Content-Type": "application/json" },
  });
}

export function problem(
  status: number,
  title: string,
  detail: string,
  errors: unknown[] = [],
): Response {
  return new Response(JSON.stringify({ type: "about:blank", title, status, detail, errors }), {
    status,
    headers: { "Content-Type": "application/problem+json" },
  });
}

export function job(change: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    id: "3f2a9c51d07b",
    name: "digits",
    user: "maria",
    project: "default",
    state: "running",
    reason: "2 ranks on here",
    attempt: 1,
    generation: 1,
    step: 120,
    total_steps: 600,
    world_size: 2,
    priority: 0,
    created_at: "2026-01-01T00:00:00Z",
    started_at: "2026-01-01T00:00:01Z",
    finished_at: null,
    ran_seconds: 0,
    running_since: "2026-01-01T00:00:01Z",
    spec: { name: "digits", task: { name: "digits", params: {} } },
    metrics: { loss: 0.5 },
    main_metric: { name: "loss", value: 0.5, goal: "min" },
    allowed_commands: [
      "pause",
      "resize",
      "cancel",
      "capture_gradients",
      "exec",
      "stacks",
      "profile",
    ],
    refused_commands: { restore: "It is running; pause or cancel it before a restore." },
    straggler: null,
    warnings: [],
    tags: [],
    metric_ranges: {},
    gpu_hours: 0,
    notes: "",
    experiment: null,
    interactive: null,
    plan: null,
    mesh: { data: 2, pipeline: 1, shard: 1, tensor: 1, servers: 0 },
    ...change,
  };
}
