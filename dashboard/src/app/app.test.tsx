import { notifications } from "@mantine/notifications";
import { cleanup, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { clock, moment } from "@/shared/format";
import { job, json, problem } from "../test/fake-api";
import { list, open } from "../test/open";
import { router } from "./router";

/** Everything is on the screen. */
class Everything {
  constructor(private readonly notify: (entries: { isIntersecting: boolean }[]) => void) {}
  observe(): void {
    this.notify([{ isIntersecting: true }]);
  }
  disconnect(): void {}
}

// Only rows with a height are on or off the screen.
beforeEach(() => {
  vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(60);
});

// Notifications outlive a page.
afterEach(() => {
  notifications.clean();
  vi.useRealTimers();
});

describe("the queue", () => {
  const waiting = (total: number, ...items: unknown[]) => ({ ...list(...items), total });
  const entry = {
    job_id: "77c0de15f00d",
    name: "gpt",
    priority: 2,
    queued_at: "2026-01-01T00:00:00Z",
    position: 1,
    reason: "needs 8 GPUs on one host; node-b has 6 of 8 free, job 3f2a9c51d07b holds 2",
    needs: { device: "cuda", count: 8 },
    earliest_start: null,
    can_start: true,
  };

  it("lists waiting jobs with reason and expected start", async () => {
    await open("/queue", { "GET /cluster/queue": waiting(1, entry) });
    const row = (await screen.findByText("gpt", { selector: "a" })).closest("tr");
    expect(row).toHaveTextContent("8 GPUs · priority 2");
    expect(row).toHaveTextContent("node-b has 6 of 8 free");
    expect(row).toHaveTextContent("unknown");
    expect(screen.getByText("3f2a9c51d07b", { selector: "a" })).toBeVisible();
  });

  it("shows times of reasons and expected starts in local time", async () => {
    vi.useFakeTimers({ now: new Date("2026-01-01T12:00:00Z"), toFake: ["Date"] });
    const start = { earliest_start: "2026-01-03T00:05:00Z" };
    const reason = "“tune” (3f2a9c51d07b) ends by 00:05 UTC on Jan 03";
    await open("/queue", { "GET /cluster/queue": waiting(1, { ...entry, ...start, reason }) });
    expect(await screen.findByText(clock(start.earliest_start, "minutes"))).toBeVisible();
    expect(screen.getByText(moment(start.earliest_start, "minutes"))).toBeVisible();
    expect(screen.getByText(/^Expected start \(UTC/)).toBeVisible();
  });

  it("shows which job can never start, and links the jobs of a reason", async () => {
    const never = { ...entry, can_start: false };
    const reason = "waiting for “gpt” (77c0de15f00d, 8 GPUs), ahead in the queue";
    const second = { ...entry, job_id: "5e60b7d2f913", name: "sweep", reason };
    await open("/queue", { "GET /cluster/queue": waiting(2, never, second) });
    const first = (await screen.findByText("never on this cluster")).closest("tr");
    expect(first).toHaveTextContent("gpt");
    const row = screen.getByText("sweep", { selector: "a" }).closest("tr");
    expect(within(row as HTMLElement).getByTitle("77c0de15f00d")).toHaveTextContent("gpt");
  });

  it("says that a job can never start under its quota", async () => {
    const never = { ...entry, can_start: false, reason_code: "quota_too_small" };
    await open("/queue", { "GET /cluster/queue": waiting(1, never) });
    expect(await screen.findByText("never under its quota")).toBeVisible();
  });

  it("is not said to be next for a job that can never start", async () => {
    const queued = job({ state: "queued", attempt: 0 });
    await open("/jobs/3f2a9c51d07b", {
      "GET /training/jobs/3f2a9c51d07b": queued,
      "GET /cluster/queue": waiting(1, { ...entry, job_id: "3f2a9c51d07b", can_start: false }),
    });
    const place = await screen.findByRole("region", { name: "Queue position" });
    expect(place).toHaveTextContent("can never start on this cluster");
    expect(place).not.toHaveTextContent("next in the queue");
  });

  it("is empty without waiting jobs", async () => {
    await open("/queue", { "GET /cluster/queue": waiting(0) });
    expect(await screen.findByText("The queue is empty")).toBeVisible();
    expect(screen.getByText(/^No job waits\./)).toBeVisible();
  });

  it("loads pages on request and shows the total", async () => {
    const later = { ...entry, job_id: "88c0de15f00d", name: "sweep", position: 2 };
    const asked = await open("/queue", {
      "GET /cluster/queue": (request: Request) =>
        new URL(request.url).searchParams.get("cursor") === "behind gpt"
          ? waiting(1234, later)
          : { ...waiting(1234, entry), next_cursor: "behind gpt" },
    });
    expect(await screen.findByText("1,234 jobs waiting, first 1 shown")).toBeVisible();
    expect(screen.queryByText("sweep")).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Load more" }));
    expect(await screen.findByText("sweep", { selector: "a" })).toBeVisible();
    expect(screen.getByText("1,234 jobs waiting, first 2 shown")).toBeVisible();
    expect(screen.queryByRole("button", { name: "Load more" })).toBeNull();
    const pages = asked.filter(({ url }) => url.includes("/cluster/queue"));
    expect(new URL(pages[0]?.url ?? "").searchParams.get("limit")).toBe("100");
  });
});

describe("the header", () => {
  it("links to the reference of the REST API", async () => {
    await open("/nowhere", {});
    await userEvent.click(await screen.findByLabelText("Help"));
    const link = (await screen.findByText("REST API reference")).closest("a");
    expect(link).toHaveAttribute("href", "/docs");
  });
});

it("jobs, commands and the shortcuts are found by keyboard", async () => {
  await open("/queue", {
    "GET /cluster/queue": { ...list(), total: 0 },
    "GET /training/jobs": list(job({ id: "a1", name: "ant" }), job({ id: "b2", name: "bee" })),
  });
  await screen.findByText("The queue is empty");
  const find = async (text: string, choice: string) => {
    await userEvent.keyboard("{Control>}k{/Control}");
    const input = await screen.findByLabelText(/^Go to a job/);
    await userEvent.type(input, text);
    await screen.findByText(choice, { selector: "[role=option] *, [role=option]" });
    await userEvent.keyboard("{Enter}");
  };
  await find("shortcuts", "Keyboard shortcuts");
  // It fades in over the palette that closes.
  await waitFor(() => expect(screen.getByText("next job of the list")).toBeVisible());
  await userEvent.keyboard("{Escape}");
  await waitFor(() => expect(screen.queryByText("next job of the list")).toBeNull());
  await find("bee", "bee");
  await waitFor(() => expect(router.state.location.pathname).toBe("/jobs/b2"));
});

describe("the comparison", () => {
  it("labels each job's main metric as its latest value", async () => {
    await open("/compare?jobs=3f2a9c51d07b", {
      "GET /training/jobs/3f2a9c51d07b": job({ state: "completed" }),
      "GET /metrics/jobs/3f2a9c51d07b": { series: [] },
    });
    const jobs = await screen.findByRole("list", { name: "Compared jobs" });
    expect(await within(jobs).findByText("step 120 · latest loss 0.5")).toBeVisible();
  });
});

describe("the jobs", () => {
  const paused = job({ id: "b2", name: "tiny", state: "paused", reason: "paused by a user" });

  it("are listed with state, reason, progress and main metric", async () => {
    await open("/jobs", { "GET /training/jobs": list(job(), paused) });
    const row = (await screen.findByText("digits", { selector: "a" })).closest("tr");
    expect(row).toHaveTextContent("running");
    expect(row).toHaveTextContent("2 ranks on here");
    expect(row).toHaveTextContent("120 / 600");
    expect(row).toHaveTextContent("0.5latest loss");
    expect(document.title).toBe("Jobs · Trainhall");
  });

  it("that ended show their run time and can be submitted again", async () => {
    const ended = job({
      state: "completed",
      reason: "completed",
      finished_at: "2026-01-01T00:37:00Z",
      ran_seconds: 120,
      running_since: null,
    });
    await open("/jobs", { "GET /training/jobs": list(ended) });
    const row = (await screen.findByText("digits", { selector: "a" })).closest("tr");
    expect(within(row as HTMLElement).getAllByText("completed")).toHaveLength(1);
    expect(row).toHaveTextContent("ran 2 min");
    const again = screen.getByRole("link", { name: "Submit digits again" });
    expect(again).toHaveAttribute("href", "/new?from=3f2a9c51d07b");
  });

  it("are filtered and searched by the coordinator", async () => {
    const newer = Array.from({ length: 100 }, (_, i) =>
      job({ id: `c${i}`, name: `sweep-${i}`, state: "completed" }),
    );
    const old = job({ id: "a1", name: "a long one" });
    const answer = ({ url }: Request) => {
      const { searchParams } = new URL(url);
      const isWanted =
        searchParams.getAll("state").includes("running") || searchParams.get("search") === "long";
      return isWanted ? list(old) : { ...list(...newer), next_cursor: "behind the sweep" };
    };
    await open("/jobs?show=active", { "GET /training/jobs": answer });
    expect(await screen.findByText("a long one", { selector: "a" })).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: /^All/ }));
    expect(await screen.findByText("sweep-3", { selector: "a" })).toBeVisible();
    await userEvent.type(screen.getByLabelText("Search by name or id"), "long");
    expect(await screen.findByText("a long one", { selector: "a" })).toBeVisible();
    expect(screen.queryByText("sweep-3")).toBeNull();
  });

  describe("in a list of a thousand", () => {
    const PAGE = 100;
    const newest = Array.from({ length: 1000 }, (_, i) =>
      job({
        id: `id-${i}`,
        name: `sweep-${i}`,
        created_at: new Date(Date.UTC(2026, 0, 1) - i * 1000).toISOString(),
      }),
    );
    const answer = ({ url }: Request) => {
      const begin = Number(new URL(url).searchParams.get("cursor") ?? 0);
      const end = begin + PAGE;
      return { items: newest.slice(begin, end), next_cursor: end < 1000 ? String(end) : null };
    };
    const rows = () => screen.getAllByText(/^sweep-\d+$/).length;

    async function openPages(pages: number): Promise<Request[]> {
      const asked = await open("/jobs", { "GET /training/jobs": answer });
      // The router begins with the address of the test before, and what is typed is debounced.
      await waitFor(() =>
        expect(asked.some(({ url }) => url.endsWith("/training/jobs?limit=100"))).toBe(true),
      );
      for (let page = 1; page < pages; page++) {
        await userEvent.click(await screen.findByText("Load more"));
        const table = screen.getByLabelText("Jobs", { selector: "table" });
        await waitFor(() =>
          expect(table).toHaveAttribute("aria-rowcount", String(PAGE * (page + 1) + 1)),
        );
      }
      return asked;
    }

    it("are rendered only on the screen", async () => {
      await openPages(2);
      expect(rows()).toBeGreaterThan(8);
      expect(rows()).toBeLessThan(40);
    });

    it("are polled only on the screen", async () => {
      const asked = await openPages(2);
      const lists = () => asked.filter(({ url }) => url.includes("/training/jobs?"));
      const before = lists().length;
      await waitFor(() => expect(lists().length).toBeGreaterThan(before + 1));
      for (const { url } of lists().slice(before)) {
        expect(new URL(url).searchParams.get("cursor")).toBeNull();
      }
    });
  });

  it("stay selected after a reload", async () => {
    const answers = { "GET /training/jobs": list(job(), paused) };
    await open("/jobs", answers);
    await userEvent.click(await screen.findByRole("checkbox", { name: "Select tiny" }));
    await userEvent.click(screen.getByRole("checkbox", { name: "Select digits" }));
    const { href } = router.state.location;
    cleanup();
    await open(href, answers);
    expect(await screen.findByRole("checkbox", { name: "Select tiny" })).toBeChecked();
    const link = await screen.findByRole("link", { name: "Compare 2" });
    expect(link).toHaveAttribute("href", expect.stringContaining("b2%2C3f2a9c51d07b"));
    await userEvent.click(screen.getByRole("button", { name: "Clear" }));
    expect(screen.getByRole("checkbox", { name: "Select tiny" })).not.toBeChecked();
  });

  it("named in a reason are links", async () => {
    const reason = "needs 2 GPUs; waits behind job 987ffb07843f, which needs 16";
    await open("/jobs", { "GET /training/jobs": list(job({ state: "queued", reason })) });
    const link = await screen.findByRole("link", { name: "987ffb07843f" });
    expect(link).toHaveAttribute("href", "/jobs/987ffb07843f");
    expect(link.closest("p")).toHaveTextContent(reason);
  });

  it("without steps show their elapsed time and last line", async () => {
    const script = job({
      step: 0,
      total_steps: null,
      metrics: {},
      main_metric: null,
      spec: { script: { path: "/a.py" } },
      running_since: new Date(Date.now() - 65_000).toISOString(),
      finished_at: null,
    });
    vi.stubGlobal("IntersectionObserver", Everything);
    await open("/jobs", {
      "GET /training/jobs": list(script),
      "GET /training/jobs/3f2a9c51d07b/logs": { items: [{ text: "\u001b[32mepoch 4" }] },
    });
    expect(await screen.findByText("epoch 4")).toBeVisible();
    expect(screen.getByText(/^1 min \d+ s so far$/)).toBeVisible();
  });

  it("are sorted by a header, in the order of the URL", async () => {
    const asked = await open("/jobs", { "GET /training/jobs": list(job()) });
    const header = () => screen.getByRole("columnheader", { name: "Progress" });
    await screen.findByText("digits", { selector: "a" });
    expect(screen.getByRole("columnheader", { name: "Submitted" })).toHaveAttribute(
      "aria-sort",
      "descending",
    );
    expect(header()).toHaveAttribute("aria-sort", "none");
    for (const [sort, direction] of [
      ["-step", "descending"],
      ["step", "ascending"],
    ]) {
      await userEvent.click(within(header()).getByRole("button"));
      await waitFor(() => expect(header()).toHaveAttribute("aria-sort", direction));
      expect(router.state.location.search).toEqual({ sort });
      await waitFor(() =>
        expect(new URL(asked.at(-1)?.url ?? "").searchParams.get("sort")).toBe(sort),
      );
    }
    const metric = screen.getByRole("columnheader", { name: "Metric" });
    await userEvent.click(within(metric).getByRole("button"));
    await waitFor(() => expect(router.state.location.search).toEqual({ sort: "-metrics.loss" }));
  });

  it("stay listed while a query is invalid, with its error marked", async () => {
    const asked = await open("/jobs", {
      "GET /training/jobs": ({ url }: Request) =>
        new URL(url).searchParams.get("query") === "🙂 lr>"
          ? problem(422, "Invalid request", "query: at character 6", [
              {
                field: "query",
                message: "at character 6: expected a value after >",
                value: "🙂 lr>",
                position: 5,
              },
            ])
          : list(job()),
    });
    await screen.findByText("digits", { selector: "a" });
    const input = screen.getByRole("textbox", { name: "Query" });
    await userEvent.click(input);
    await userEvent.paste("🙂 lr>");
    expect(await screen.findByText(/expected a value after >/)).toBeVisible();
    expect(document.querySelector("mark")).toHaveTextContent("");
    expect(document.querySelector("mark")?.parentElement).toHaveTextContent("🙂 lr>");
    expect(input).toHaveAttribute("aria-invalid", "true");
    const kept = screen.getByText("digits", { selector: "a" });
    expect(kept).toBeVisible();
    expect(kept.closest("[data-stale]")).not.toBeNull();
    await userEvent.type(input, "0.1");
    await waitFor(() => expect(document.querySelector("mark")).toBeNull());
    expect(document.querySelector("[data-stale]")).toBeNull();
    expect(router.state.location.search).toEqual({ query: "🙂 lr>0.1" });
    const lists = asked.filter(({ url }) => url.includes("/training/jobs"));
    expect(new URL(lists.at(-1)?.url ?? "").searchParams.get("query")).toBe("🙂 lr>0.1");
  });

  it("are counted in groups, which lead to their jobs", async () => {
    const group = { value: "maria", name: null, count: 2, query: 'user="maria"' };
    const none = { value: null, name: null, count: 1, query: "no:user" };
    const asked = await open("/jobs?group=user&query=lr>1&show=archived", {
      "GET /training/jobs": list(job()),
      "GET /training/jobs/groups": list(group, none),
    });
    const link = await screen.findByRole("link", { name: "maria" });
    const params = new URL(asked.find(({ url }) => url.includes("by=user"))?.url ?? "")
      .searchParams;
    expect(Object.fromEntries(params)).toEqual({
      by: "user",
      limit: "1000",
      query: "lr>1 archived:yes",
    });
    expect(screen.getByRole("link", { name: "no owner" }).closest("tr")).toHaveTextContent("1");
    const user = userEvent.setup();
    await user.click(screen.getByRole("button", { name: "Copy as" }));
    // By its text: Mantine hides a menu once it sees that its button, in jsdom, takes no space.
    await user.click(await screen.findByText("Command line", { selector: "[role=menuitem] *" }));
    const copied = await navigator.clipboard.readText();
    expect(copied).toContain("'--query=lr>1 archived:yes'");
    await userEvent.click(link);
    expect(await screen.findByText("digits", { selector: "a" })).toBeVisible();
    expect(router.state.location.search).toEqual({ query: 'lr>1 user="maria"', show: "archived" });
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Group by" }), "By state");
    await screen.findByRole("table", { name: "Groups of jobs" });
  });

  it("have a query whose terms are explained", async () => {
    await open("/jobs", { "GET /training/jobs": list(job()) });
    await userEvent.click(await screen.findByRole("button", { name: "Help on queries" }));
    expect(await screen.findByText("metrics.loss<=0.5")).toBeInTheDocument();
  });

  it("are searched by text inserted at the start", async () => {
    await open("/jobs?search=net", { "GET /training/jobs": list(job()) });
    const input = await screen.findByLabelText("Search by name or id");
    await userEvent.type(input, "res", { initialSelectionStart: 0 });
    expect(input).toHaveValue("resnet");
    await waitFor(() => expect(router.state.location.search).toEqual({ search: "resnet" }));
    await userEvent.type(input, "{Escape}");
    await waitFor(() => expect(router.state.location.search).toEqual({}));
  });

  it("are filtered by the URL", async () => {
    await open("/jobs?show=paused", {
      "GET /training/jobs": ({ url }: Request) =>
        new URL(url).searchParams.getAll("state").join() === "paused"
          ? list(paused)
          : list(job(), paused),
    });
    expect(await screen.findByText("tiny")).toBeVisible();
    expect(screen.queryByText("digits", { selector: "a" })).toBeNull();
    expect(screen.getByRole("button", { name: /Paused/ })).toHaveAttribute("aria-pressed", "true");
  });

  it("are counted as the query leaves them, with a hint where none matches", async () => {
    const hint = "No job has a parameter lrr; did you mean lr?";
    const groups = [{ value: "failed", name: null, count: 7, query: 'state="failed"' }];
    await open("/jobs?query=parameters.lrr>0", {
      "GET /training/jobs": { ...list(), hint },
      "GET /training/jobs/groups": list(...groups),
    });
    expect(await screen.findByText(hint)).toBeVisible();
    expect(await screen.findByRole("button", { name: "Failed7" })).toBeVisible();
    expect(screen.getByRole("button", { name: "All7" })).toBeVisible();
    expect(screen.getByRole("button", { name: "Paused0" })).toBeVisible();
  });

  it("are all shown for an unknown filter in the URL", async () => {
    await open("/jobs?show=everything", { "GET /training/jobs": list(job(), paused) });
    expect(await screen.findByText("tiny")).toBeVisible();
    expect(router.state.location.search).toEqual({});
  });

  it("are paused by a button, and cancelled after a confirmation", async () => {
    const asked = await open("/jobs", {
      "GET /training/jobs": list(job()),
      "PUT /training/jobs/3f2a9c51d07b/pause": json(job({ state: "pausing" }), 202),
      "DELETE /training/jobs/3f2a9c51d07b": problem(409, "The state forbids it", "it has ended"),
    });
    const sent = (method: string) => asked.filter((request) => request.method === method).length;
    await userEvent.click(await screen.findByRole("button", { name: "Pause digits" }));
    await vi.waitFor(() => expect(sent("PUT")).toBe(1));
    await userEvent.click(screen.getByRole("button", { name: "Cancel digits" }));
    await userEvent.click(await screen.findByRole("button", { name: "Go back" }));
    expect(sent("DELETE")).toBe(0);
    await userEvent.click(screen.getByRole("button", { name: "Cancel digits" }));
    await userEvent.click(await screen.findByRole("button", { name: "Cancel job" }));
    expect(await screen.findByText("Could not cancel the job: The state forbids it")).toBeVisible();
    expect(screen.getByText("it has ended")).toBeVisible();
  });
});

describe("the nodes", () => {
  it("name the jobs on them without a request for each", async () => {
    const device = { kind: "cuda", name: "H100", utilization: 50, temperature: null, power: null };
    const held = { ...device, index: 0, busy: true, job_id: "b2", job_name: "tiny", gone: false };
    const state = { state: "ready", reason: "", refused_commands: {} };
    const node = { id: "n1", name: "gpu-07", ...state, labels: {}, host: {} };
    const asked = await open("/nodes", {
      "GET /cluster/nodes": list({ ...node, drain_reason: null, devices: [held] }),
    });
    expect(await screen.findByRole("link", { name: "tiny" })).toHaveAttribute("href", "/jobs/b2");
    expect(asked.filter(({ url }) => url.includes("/training/jobs/"))).toEqual([]);
    // What replaces a pressed button gets its focus, in either view.
    await userEvent.click(screen.getByRole("button", { name: "Hide the devices of gpu-07" }));
    const closed = await screen.findByRole("button", { name: "Show the devices of gpu-07" });
    await waitFor(() => expect(closed).toHaveFocus());
    await userEvent.click(screen.getByRole("radio", { name: "Grid" }));
    await userEvent.click(
      await screen.findByRole("button", { name: /^gpu-07.*1 of 1 devices busy/ }),
    );
    const opened = await screen.findByRole("button", { name: "Hide the devices of gpu-07" });
    await waitFor(() => expect(opened).toHaveFocus());
    expect(router.state.location.search).toEqual({ view: "grid", open: "gpu-07" });
  });
});

describe("a new job", () => {
  it("is checked, and an error is shown with its line", async () => {
    const asked = await open("/new", {
      "POST /training/jobs": problem(422, "Invalid job spec", "one thing is wrong", [
        { field: "training.steps", message: "must be at least 1", value: "0" },
      ]),
    });
    await userEvent.click(await screen.findByRole("button", { name: "Check" }));
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("Invalid job spec");
    const located = within(alert).getByRole("button");
    expect(located).toHaveTextContent("line 7");
    expect(located).toHaveTextContent("training.steps must be at least 1");
    const request = asked.find(({ method }) => method === "POST");
    expect(new URL(request?.url ?? "").searchParams.get("dry_run")).toBe("true");
    expect(request?.headers.get("Content-Type")).toBe("application/yaml");
    expect(await request?.text()).toMatch(/^name: digits\n/);
  });

  it("is sent as YAML when the editor is empty, too", async () => {
    sessionStorage.setItem("trainhall.draft.job", "");
    const asked = await open("/new", { "POST /training/jobs": problem(422, "", "it is empty") });
    await userEvent.click(await screen.findByRole("button", { name: "Submit" }));
    expect(await screen.findByRole("alert")).toHaveTextContent("it is empty");
    const request = asked.find(({ method }) => method === "POST");
    expect(request?.headers.get("Content-Type")).toBe("application/yaml");
    sessionStorage.clear();
  });

  it("that can never start is valid, with a warning", async () => {
    const reason = "needs 9 GPUs; add nodes with `trainhall nodes add`";
    const outlook = { when: "never", position: 1, expected_at: null, reason };
    await open("/new", { "POST /training/jobs": { outlook, spec: {}, warnings: [] } });
    await userEvent.click(await screen.findByRole("button", { name: "Check" }));
    const warning = await screen.findByRole("alert");
    expect(warning).toHaveTextContent(
      `Valid. It could never start on this cluster: ${reason.replaceAll("`", "")}.`,
    );
    expect(within(warning).getByText("trainhall nodes add").tagName).toBe("CODE");
  });

  it("is checked again, not submitted, after a failed check", async () => {
    const checks: (string | null)[] = [];
    await open("/new", {
      "POST /training/jobs": ({ url }: Request) => {
        checks.push(new URL(url).searchParams.get("dry_run"));
        if (checks.length === 1) throw new TypeError("Failed to fetch");
        const outlook = { when: "now", position: 1, expected_at: null, reason: "on here" };
        return { outlook, spec: {}, warnings: [] };
      },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Check" }));
    expect(await screen.findByRole("alert")).toHaveTextContent("Could not check the spec");
    await userEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(await screen.findByText(/^Valid\./)).toBeVisible();
    expect(checks).toEqual(["true", "true"]);
  });

  it("is submitted with one idempotency key for all tries", async () => {
    const keys: (string | null)[] = [];
    await open("/new", {
      "POST /training/jobs": (request: Request) => {
        keys.push(request.headers.get("Idempotency-Key"));
        if (keys.length === 1) throw new TypeError("Failed to fetch");
        return json(job(), 201);
      },
      "GET /training/jobs/3f2a9c51d07b": job(),
    });
    await userEvent.click(await screen.findByRole("button", { name: "Submit" }));
    await userEvent.click(await screen.findByRole("button", { name: "Try again" }));
    await vi.waitFor(() => expect(router.state.location.pathname).toBe("/jobs/3f2a9c51d07b"));
    expect(keys).toHaveLength(2);
    expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(keys[1]).toBe(keys[0]);
  });
});

describe("mock mode", () => {
  it("is shown on every page", async () => {
    const health = { status: "ok", version: "0", simulated: true };
    await open("/nodes", { "GET /healthz": health, "GET /cluster/nodes": list() });
    expect(await screen.findByText("simulated")).toBeVisible();
  });

  it("is not shown for a real cluster", async () => {
    const health = { status: "ok", version: "0", simulated: false };
    await open("/nodes", { "GET /healthz": health, "GET /cluster/nodes": list() });
    expect(await screen.findByText("No nodes yet")).toBeVisible();
    expect(screen.queryByText("simulated")).toBeNull();
  });
});

describe("an error", () => {
  it("is shown with its detail and can be retried", async () => {
    let down = true;
    await open("/nodes", {
      "GET /cluster/nodes": () =>
        down ? problem(500, "The coordinator failed", "the disk is full") : list(),
    });
    expect(await screen.findByText("the disk is full")).toBeVisible();
    down = false;
    await userEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(await screen.findByText("No nodes yet")).toBeVisible();
  });

  it("is shown for an unknown URL", async () => {
    await open("/nowhere", {});
    expect(await screen.findByRole("heading", { level: 1, name: "Page not found" })).toBeVisible();
  });
});
