import { cleanup, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { job, json, problem } from "../test/fake-api";
import { list, open } from "../test/open";
import { router } from "./router";

const REPORT = {
  id: "a83e5c07d1f2",
  title: "Rates",
  text: "# Best\n\n```chart\nquery: state:running\nmetric: loss\n```\n\n```chart\nqurey: a\n```\n\n```sh\nls\n```",
  version: 3,
  created_at: "2026-01-01T00:00:00Z",
  user: "maria",
  project: "default",
  updated_at: "2026-01-02T00:00:00Z",
};
const GET = `GET /reports/${REPORT.id}`;
const PATCH = `PATCH /reports/${REPORT.id}`;
const JOBS = { "GET /training/jobs": list(job()), "GET /training/jobs/3f2a9c51d07b": job() };

beforeEach(() => {
  // Everything is on the screen.
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(private readonly notify: (entries: { isIntersecting: boolean }[]) => void) {}
      observe(): void {
        this.notify([{ isIntersecting: true }]);
      }
      disconnect(): void {}
    },
  );
});
afterEach(() => sessionStorage.clear());

const typeText = async (text: string) => {
  const field = await screen.findByLabelText("Text");
  await userEvent.clear(field);
  await userEvent.type(field, text);
};

it("a report is read: its text, its charts, and what is wrong with one", async () => {
  const asked = await open("/reports", { "GET /reports": list(REPORT), [GET]: REPORT, ...JOBS });
  await userEvent.click(await screen.findByRole("link", { name: "Rates" }));
  expect(await screen.findByRole("heading", { name: "Best" })).toBeVisible();
  expect(await screen.findByRole("link", { name: "1 job" })).toHaveAttribute(
    "href",
    expect.stringContaining("3f2a9c51d07b"),
  );
  expect(await screen.findByText(/qurey: unknown key; allowed are jobs, query/)).toBeVisible();
  expect(screen.getByText("ls")).toBeVisible();
  expect(asked.some(({ url }) => url.includes("query=state%3Arunning"))).toBe(true);
});

it("a report is changed; the second of two editors keeps the text and decides", async () => {
  const bodies: unknown[] = [];
  let newest = REPORT;
  const answers: Record<string, unknown> = {
    ...JOBS,
    [GET]: () => newest,
    [PATCH]: async (request: Request) => {
      const body = await request.json();
      bodies.push(body);
      newest = { ...REPORT, version: 4 };
      return body.version === REPORT.version
        ? problem(409, "Conflict", "the report was changed, after you opened it")
        : json({ ...REPORT, ...body, version: 5 });
    },
  };
  await open(`/reports/${REPORT.id}?edit=true`, answers);
  await typeText("mine");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  expect(await screen.findByRole("alert")).toHaveTextContent("after you opened it");
  expect(screen.getByLabelText("Text")).toHaveValue("mine");
  const replace = screen.getByRole("button", { name: "Replace it with mine" });
  await waitFor(() => expect(replace).toBeEnabled());
  await userEvent.click(replace);
  expect(await screen.findByText("mine", { selector: "p" })).toBeVisible();
  expect(bodies).toMatchObject([{ version: 3, text: "mine" }, { version: 4 }]);
});

it("the draft of a new report survives a reload, and a chart is added to it", async () => {
  const created = vi.fn();
  const answers = {
    ...JOBS,
    "POST /reports": async (request: Request) => {
      created(await request.json());
      return json(REPORT, 201);
    },
    [GET]: REPORT,
  };
  await open("/reports/new", answers);
  await userEvent.type(await screen.findByLabelText(/^Title/), "Rates");
  await typeText("Begun.");
  cleanup();
  await open("/reports", { "GET /reports": list() });
  cleanup();
  const chart = encodeURIComponent(JSON.stringify({ jobs: ["3f2a9c51d07b"], metric: ["loss"] }));
  await open(`/reports/new?chart=${chart}`, answers);
  const text = "Begun.\n```chart\njobs:\n  - 3f2a9c51d07b\nmetric:\n  - loss\n```\n";
  await waitFor(() => expect(screen.getByLabelText("Text")).toHaveValue(text));
  expect(router.state.location.search).toEqual({});
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  expect(await screen.findByRole("heading", { name: "Best" })).toBeVisible();
  expect(created).toHaveBeenCalledWith({ title: "Rates", text });
  expect(sessionStorage).toHaveLength(0);
});

it("a chart names the jobs that are gone, unless there are more than it draws", async () => {
  const text = "```chart\njobs: [3f2a9c51d07b, b2]\nmetric: loss\n```";
  let found: object = list(job());
  await open(`/reports/${REPORT.id}`, {
    ...JOBS,
    [GET]: { ...REPORT, text },
    "GET /training/jobs": () => json(found),
  });
  expect(await screen.findByText(/Job b2 not found/)).toBeVisible();
  cleanup();
  found = { ...found, next_cursor: "more" };
  await open(`/reports/${REPORT.id}`, {
    ...JOBS,
    [GET]: { ...REPORT, text },
    "GET /training/jobs": () => json(found),
  });
  expect(await screen.findByRole("link", { name: "The newest 1 job" })).toBeVisible();
  expect(screen.queryByText(/not found/)).toBeNull();
});
