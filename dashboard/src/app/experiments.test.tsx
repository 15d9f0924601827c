import { notifications } from "@mantine/notifications";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { job, json, problem } from "../test/fake-api";
import { list, open } from "../test/open";
import { router } from "./router";

const ID = "7c0d93be12f4";

function experiment(change: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    id: ID,
    name: "digits learning rate",
    user: "maria",
    project: "default",
    kind: "sweep",
    state: "running",
    reason: "at most 2 unfinished at a time",
    reason_code: "trials_run",
    counts: { completed: 2, running: 1, failed: 1, pending: 2 },
    best: {
      trial: 2,
      job_id: "5e60b7d2f913",
      value: 0.9312,
      step: null,
      ties: [4],
      values: { "training.learning_rate": 0.01, "task.params.hidden": [64, 64] },
    },
    steps: null,
    allowed_commands: ["pause", "cancel"],
    created_at: "2026-01-01T00:00:00Z",
    finished_at: null,
    spec: {
      name: "digits learning rate",
      kind: "sweep",
      job: { name: "digits", task: { name: "digits" } },
      space: {
        "training.learning_rate": { log: [0.0001, 0.1] },
        "task.params.hidden": [[32], [64, 64]],
      },
      method: "random",
      objective: { metric: "eval_accuracy", goal: "max", at: "last" },
      trials: 6,
      parallel: 2,
      repeats: 1,
      seed: null,
    },
    ...change,
  };
}

function trial(number: number, rate: number, change: Record<string, unknown> = {}) {
  return {
    number,
    repeat: 1,
    rung: null,
    job_id: `${number}`.repeat(12),
    state: "completed",
    reason: "completed",
    values: { "training.learning_rate": rate, "task.params.hidden": [64, 64] },
    step: 200,
    results: [],
    objective: rate * 10,
    objective_step: null,
    metrics: { step_seconds: 0.5 / number },
    finished_at: `2026-01-01T00:0${number}:00Z`,
    ...change,
  };
}

const TRIALS = list(
  trial(1, 0.001),
  trial(2, 0.01),
  trial(3, 0.003, {
    state: "failed",
    reason: "rank 0 of job 3f2a9c51d07b: the loss is NaN",
    objective: null,
  }),
  trial(4, 0.0002, { state: "pending", reason: "", job_id: null, objective: null }),
);

const page = (shown = experiment(), more: Record<string, unknown> = {}) => ({
  [`GET /experiments/${ID}`]: shown,
  [`GET /experiments/${ID}/trials`]: TRIALS,
  ...more,
});

// Only rows with a height are on or off the screen.
beforeEach(() => {
  vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(60);
  sessionStorage.clear();
});

// Notifications outlive a page.
afterEach(() => notifications.clean());

describe("the experiments", () => {
  it("are listed with state, runs and best value", async () => {
    await open("/experiments", { "GET /experiments": list(experiment()) });
    const link = await screen.findByRole("link", { name: "digits learning rate" });
    expect(link).toHaveAttribute("href", `/experiments/${ID}`);
    const row = link.closest("tr");
    expect(row).toHaveTextContent("runningat most 2 unfinished at a time");
    expect(row).toHaveTextContent("random");
    expect(row).toHaveTextContent("2 of 6 completed · 1 running, 2 pending, 1 failed");
    expect(row).toHaveTextContent("0.9312eval_accuracy");
  });

  it("are loaded page by page", async () => {
    await open("/experiments", {
      "GET /experiments": ({ url }: Request) =>
        new URL(url).searchParams.has("cursor")
          ? list(experiment({ id: "8c0d93be12f4", name: "older" }))
          : { ...list(experiment()), next_cursor: "next" },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Load more" }));
    expect(await screen.findByRole("link", { name: "older" })).toBeVisible();
    expect(screen.queryByRole("button", { name: "Load more" })).toBeNull();
  });

  it("tell how to create the first", async () => {
    await open("/experiments", { "GET /experiments": list() });
    expect(await screen.findByText("No experiments yet")).toBeVisible();
    expect(screen.getByText(/^trainhall experiment create/)).toBeVisible();
    for (const link of screen.getAllByRole("link", { name: "New experiment" })) {
      expect(link).toHaveAttribute("href", "/experiments/new");
    }
  });
});

describe("a new experiment", () => {
  it("is checked without creating it, and shows its trials", async () => {
    const plan = {
      name: "rates",
      runs: 4,
      code_missing: false,
      hint: "No job has a metric eval_acc; did you mean eval_accuracy?",
      configurations: [0.5, 0.25].map((rate, index) => ({
        number: index + 1,
        values: { "training.learning_rate": rate, "parameters.hidden": [64, 64] },
      })),
      spec: {},
    };
    let dryRun: string | null = null;
    await open("/experiments/new", {
      "POST /experiments": ({ url }: Request) => {
        dryRun = new URL(url).searchParams.get("dry_run");
        return plan;
      },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Check" }));
    expect(await screen.findByRole("status")).toHaveTextContent(
      "Valid. 2 trials, 4 runs: learning_rate 0.5, hidden [64,64]; learning_rate 0.25, hidden [64,64]. No job has a metric eval_acc; did you mean eval_accuracy?",
    );
    expect(dryRun).toBe("true");
  });

  it("clears a problem when its field changes, and checks again", async () => {
    let isMended = false;
    await open("/experiments/new", {
      "POST /experiments": () => {
        if (isMended) return { name: "a", runs: 3, configurations: [], spec: {} };
        return problem(422, "The experiment is not valid", "2 problems", [
          { field: "name", message: "must not be empty", value: null },
          { field: "repeats", message: "must be a number", value: "x" },
        ]);
      },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Check" }));
    const name = screen.getByRole("textbox", { name: "Name" });
    await waitFor(() => expect(name).toBeInvalid());
    isMended = true;
    fireEvent.change(name, { target: { value: "mine" } });
    expect(name).toBeValid();
    expect(screen.getByRole("textbox", { name: "Repeats" })).toBeInvalid();
    expect(await screen.findByText(/^Valid\. 3 runs/)).toBeVisible();
    expect(screen.getByRole("textbox", { name: "Repeats" })).toBeValid();
  });

  it("begins with the draft, which is discarded by a click", async () => {
    sessionStorage.setItem("trainhall.draft.experiment", "name: mine\nkind: sweep\n");
    await open("/experiments/new", {});
    expect(await screen.findByText(/This is your draft/)).toBeVisible();
    const name = screen.getByLabelText("Name");
    expect(name).toHaveValue("mine");
    await userEvent.click(screen.getByText("Discard it"));
    expect(name).not.toHaveValue("mine");
    expect(screen.queryByText(/This is your draft/)).toBeNull();
  });
});

describe("an experiment", () => {
  it("shows its state, its runs and its best trial", async () => {
    await open(`/experiments/${ID}`, page());
    expect(await screen.findByTestId("experiment-state")).toHaveTextContent("running");
    expect(screen.getByText("at most 2 unfinished at a time")).toBeVisible();
    expect(screen.getByTestId("runs")).toHaveTextContent(
      "2 of 6 runs completed, 1 running, 2 pending, 1 failed",
    );
    const best = screen.getByRole("region", { name: "Best trial" });
    expect(best).toHaveTextContent("best eval_accuracy0.9312trial 2tied with trial 4");
    expect(best).toHaveTextContent("learning_rate0.01hidden[64,64]");
    expect(within(best).getByRole("link")).toHaveAttribute("href", "/jobs/5e60b7d2f913");
    expect(document.title).toBe("digits learning rate · running · Trainhall");
  });

  it("lists its trials, sorted by any column", async () => {
    await open(`/experiments/${ID}`, page());
    const table = await screen.findByRole("table", { name: "Trials" });
    const rows = () => within(table).getAllByRole("row").slice(1);
    const numbers = () => rows().map((row) => row.children[1]?.textContent);
    expect(numbers()).toEqual(["1", "2best", "3", "4"]);
    expect(rows()[0]).toHaveTextContent("0.001[64,64]0.01completed");
    expect(rows()[2]).toHaveTextContent("the loss is NaN");
    expect(within(rows()[0] as HTMLElement).getByRole("link")).toHaveAttribute(
      "href",
      "/jobs/111111111111",
    );
    const header = within(table).getByRole("button", { name: "learning_rate" });
    await userEvent.click(header);
    await waitFor(() => expect(numbers()).toEqual(["4", "1", "3", "2best"]));
    await userEvent.click(header);
    await waitFor(() => expect(numbers()).toEqual(["2best", "3", "1", "4"]));
    expect(router.state.location.search).toEqual({ sort: "-training.learning_rate" });
    await userEvent.click(within(table).getByRole("button", { name: "eval_accuracy" }));
    await waitFor(() => expect(numbers()).toEqual(["1", "2best", "3", "4"]));
  });

  it("shows the mean of each trial with repeats", async () => {
    const spec = { ...(experiment().spec as object), repeats: 2 };
    const runs = list(
      trial(1, 0.01, { objective: 0.5 }),
      trial(1, 0.01, { repeat: 2, objective: 0.7 }),
    );
    await open(`/experiments/${ID}`, {
      ...page(experiment({ spec, best: null })),
      [`GET /experiments/${ID}/trials`]: runs,
    });
    const table = await screen.findByRole("table", { name: "Trials" });
    expect(within(table).getAllByRole("row")[2]).toHaveTextContent(
      "1repeat 2 of 20.01[64,64]0.70.6completed",
    );
  });

  it("is charted over its trials, or over a parameter of the URL", async () => {
    await open(`/experiments/${ID}?x=training.learning_rate`, page());
    expect(
      await screen.findByRole("img", {
        name: "eval_accuracy by learning_rate",
      }),
    ).toBeInTheDocument();
    await userEvent.click(screen.getByRole("combobox", { name: "X axis" }));
    await userEvent.click(
      // Its list fades in, which no test waits for.
      await screen.findByText("Trial, with the best so far", { selector: "[role=option] *" }),
    );
    expect(await screen.findByRole("img", { name: /by trial/ })).toBeInTheDocument();
    expect(router.state.location.search).toEqual({});
  });

  it("selects trials in the table or by a range of the URL, in all charts", async () => {
    await open(`/experiments/${ID}`, page());
    const table = await screen.findByRole("table", { name: "Trials" });
    await userEvent.click(within(table).getByRole("checkbox", { name: "Select trial 2" }));
    await userEvent.click(within(table).getByRole("checkbox", { name: "Select trial 1" }));
    expect(await screen.findByText("2 of 4 trials selected")).toBeVisible();
    expect(router.state.location.search).toEqual({ selected: "1,2" });
    const compared = screen.getByRole("link", { name: "Compare curves" });
    expect(compared).toHaveAttribute("href", "/compare?jobs=111111111111%2C222222222222");
    await userEvent.click(screen.getByRole("button", { name: "Clear selection" }));
    expect(await screen.findByText("4 trials")).toBeVisible();
    await router.navigate({
      to: "/experiments/$experimentId",
      params: { experimentId: ID },
      search: { brush: { "training.learning_rate": [0.002, 0.02] } },
    });
    expect(await screen.findByText("2 of 4 trials selected")).toBeVisible();
    expect(within(table).getAllByRole("row")).toHaveLength(3);
  });

  it("is charted with any metric, over time", async () => {
    await open(`/experiments/${ID}?x=time&y=step_seconds`, page());
    expect(await screen.findByRole("img", { name: "step_seconds by time" })).toBeInTheDocument();
    expect(screen.getByRole("img", { name: /^Trials over learning_rate, hidden/ })).toBeVisible();
  });

  it("counts the runs that its table shows", async () => {
    // Without a poll: the counts come with the rows.
    const interval = vi.spyOn(window, "setInterval").mockReturnValue(0 as never);
    let rowsWereRead = false;
    await open(`/experiments/${ID}`, {
      [`GET /experiments/${ID}`]: () =>
        experiment(rowsWereRead ? { counts: { completed: 5, running: 1 } } : {}),
      [`GET /experiments/${ID}/trials`]: () => {
        rowsWereRead = true;
        return TRIALS;
      },
    });
    expect(await screen.findByText("5 of 6 runs completed, 1 running")).toBeVisible();
    interval.mockRestore();
  });

  it("marks the value of a rung as not final", async () => {
    const best = { ...(experiment().best as object), step: 1200 };
    const { spec } = experiment() as { spec: object };
    const stopping = { ...spec, early_stopping: { asha: { min_steps: 20, max_steps: 1200 } } };
    const results = [{ step: 20, value: 0.25 }];
    const stopped = { state: "stopped", objective: 0.25, objective_step: 20, results };
    await open(
      `/experiments/${ID}`,
      page(experiment({ best, spec: stopping }), {
        [`GET /experiments/${ID}/trials`]: list(trial(1, 0.001, stopped), trial(2, 0.01)),
      }),
    );
    const section = await screen.findByRole("region", { name: "Best trial" });
    expect(section).toHaveTextContent("best eval_accuracy so far, at step 1,2000.9312");
    const table = await screen.findByRole("table", { name: "Trials" });
    expect(table).toHaveTextContent("2best so far");
    expect(table).toHaveTextContent("0.25 at step 20");
    await open("/experiments", { "GET /experiments": list(experiment({ best })) });
    expect(await screen.findByText("eval_accuracy at step 1,200")).toBeVisible();
  });

  it("that ended without a value says which metric is missing", async () => {
    const ended = experiment({ state: "failed", best: null, finished_at: "2026-01-01T01:00:00Z" });
    const none = list(trial(1, 0.001, { state: "failed", objective: null }));
    await open(`/experiments/${ID}`, page(ended, { [`GET /experiments/${ID}/trials`]: none }));
    expect(await screen.findByText("No run reported eval_accuracy.")).toBeVisible();
    expect(screen.queryByText("no values yet")).toBeNull();
  });

  it("that ended says once how many of its runs completed", async () => {
    const change = {
      state: "completed",
      reason: "6 of 6 runs completed; best eval_accuracy 0.9312 in trial 2",
      reason_code: "trials_ended",
      counts: { completed: 6 },
    };
    await open(`/experiments/${ID}`, page(experiment(change)));
    expect(await screen.findByTestId("runs")).toHaveTextContent("6 of 6 runs completed");
    expect(screen.getAllByText(/6 of 6 runs completed/)).toHaveLength(1);
  });

  it("has a bar of its completed runs", async () => {
    const counts = { completed: 3, cancelled: 9 };
    await open(`/experiments/${ID}`, page(experiment({ state: "cancelled", counts })));
    const bar = await screen.findByRole("progressbar", { name: "Progress" });
    expect(bar).toHaveAttribute("aria-valuenow", "25");
  });

  it("is paused and resumed by a button, and cancelled after a confirmation", async () => {
    const asked = await open(
      `/experiments/${ID}`,
      page(experiment(), {
        [`PUT /experiments/${ID}/pause`]: experiment({
          state: "paused",
          allowed_commands: ["resume", "cancel"],
        }),
        [`PUT /experiments/${ID}/resume`]: experiment(),
        [`DELETE /experiments/${ID}`]: problem(409, "Wrong state", "it is completed"),
      }),
    );
    await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
    await userEvent.click(await screen.findByRole("button", { name: "Resume" }));
    await screen.findByRole("button", { name: "Pause" });
    await userEvent.click(screen.getByRole("button", { name: "Cancel" }));
    expect(asked.some(({ method }) => method === "DELETE")).toBe(false);
    await userEvent.click(await screen.findByRole("button", { name: "Cancel experiment" }));
    expect(await screen.findByText("Could not cancel the experiment: Wrong state")).toBeVisible();
  });

  it("that ended shows its spec, and can be created again", async () => {
    const ended = experiment({
      state: "completed",
      allowed_commands: [],
      finished_at: "2026-01-01T01:00:00Z",
    });
    await open(`/experiments/${ID}?tab=spec`, page(ended));
    expect(await screen.findByText(/log:/)).toHaveTextContent("method: random");
    expect(screen.queryByRole("button", { name: "Pause" })).toBeNull();
    for (const link of screen.getAllByRole("link", { name: "Create again" })) {
      expect(link).toHaveAttribute("href", `/experiments/new?from=${ID}`);
    }
  });

  it("is analyzed on a tab, and again on demand while it runs", async () => {
    let asked = 0;
    const analysis = (findings: string[], change: Record<string, unknown> = {}) => ({
      experiment_id: ID,
      metric: "eval_accuracy",
      is_final: false,
      findings,
      comparisons: [
        { field: null, text: "the runner-up is a finding" },
        { field: "task.params.hidden", text: "Trial 2 has 0.9312, trial 4 has 0.9." },
      ],
      importance: {
        note: "",
        fields: [
          { field: "training.learning_rate", share: 0.8, interval: [0.7, 0.9], has_effect: true },
          { field: "task.params.hidden", share: 0.2, interval: [0.1, 0.3], has_effect: false },
        ],
      },
      generated_at: new Date().toISOString(),
      ...change,
    });
    await open(
      `/experiments/${ID}?tab=analysis`,
      page(experiment(), {
        [`POST /experiments/${ID}/analyze`]: () => {
          asked += 1;
          return analysis([`Trial 2 is the best of ${asked}.`]);
        },
      }),
    );
    const findings = await screen.findByRole("region", { name: "Findings" });
    expect(findings).toHaveTextContent("Trial 2 is the best of 1.");
    const compared = screen.getByRole("region", { name: "Comparisons" });
    expect(within(compared).getAllByRole("listitem")).toHaveLength(1);
    const importance = screen.getByRole("region", { name: "Importance" });
    expect(importance).toHaveTextContent("learning_rate80 % 70 % to 90 %");
    expect(importance).toHaveTextContent("hidden20 % 10 % to 30 % · no effect shown");
    await userEvent.click(screen.getByRole("button", { name: "Analyze again" }));
    expect(await screen.findByText("Trial 2 is the best of 2.")).toBeVisible();
  });

  it("that ended has an analysis that stays, without comparisons of single runs", async () => {
    const ended = experiment({ state: "failed", finished_at: "2026-01-01T01:00:00Z" });
    await open(
      `/experiments/${ID}?tab=analysis`,
      page(ended, {
        [`POST /experiments/${ID}/analyze`]: {
          metric: "eval_accuracy",
          is_final: true,
          findings: ["No run has completed, so no trial is the best."],
          comparisons: [],
          importance: { note: "", fields: [] },
          generated_at: "2026-01-01T01:00:00Z",
        },
      }),
    );
    expect(await screen.findByText("No run has completed, so no trial is the best.")).toBeVisible();
    expect(screen.queryByRole("button", { name: "Analyze again" })).toBeNull();
    expect(screen.queryByRole("region", { name: "Importance" })).toBeNull();
  });

  it("has a report to open or download", async () => {
    await open(`/experiments/${ID}`, page());
    await userEvent.click(await screen.findByRole("button", { name: "Report" }));
    const address = `/api/v1/experiments/${ID}/report`;
    const opened = await screen.findByText("Open", { selector: "[role=menuitem] *" });
    expect(opened.closest("a")).toHaveAttribute("href", `${address}?format=html`);
    const csv = screen.getByText("CSV: the runs").closest("a");
    expect(csv).toHaveAttribute("href", `${address}?format=csv`);
    expect(csv).toHaveAttribute("download", `experiment-${ID}.csv`);
  });

  it("that does not exist is named", async () => {
    await open(`/experiments/${ID}`, {});
    expect(await screen.findByText("Experiment not found")).toBeVisible();
  });

  it("is linked from the page of its job", async () => {
    const run = job({ experiment: { id: ID, trial: 2, repeat: 1 } });
    await open("/jobs/3f2a9c51d07b", { "GET /training/jobs/3f2a9c51d07b": run });
    const link = await screen.findByRole("link", { name: "trial 2 of an experiment" });
    expect(link).toHaveAttribute("href", `/experiments/${ID}`);
  });
});

describe("a new experiment", () => {
  it("is created from the text of the editor", async () => {
    const asked = await open("/experiments/new", {
      ...page(),
      "POST /experiments": () => json(experiment(), 201),
    });
    await userEvent.click(await screen.findByRole("button", { name: "Create" }));
    await waitFor(() => expect(router.state.location.pathname).toBe(`/experiments/${ID}`));
    const request = asked.find(({ method }) => method === "POST");
    expect(request?.headers.get("Content-Type")).toBe("application/yaml");
    expect(await request?.text()).toMatch(/^name: digits learning rate\nkind: sweep\n/);
  });

  it("is created with one idempotency key for all tries", async () => {
    const keys: (string | null)[] = [];
    await open("/experiments/new", {
      ...page(),
      "POST /experiments": (request: Request) => {
        keys.push(request.headers.get("Idempotency-Key"));
        if (keys.length === 1) throw new TypeError("Failed to fetch");
        return json(experiment(), 201);
      },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Create" }));
    await userEvent.click(await screen.findByRole("button", { name: "Try again" }));
    await waitFor(() => expect(router.state.location.pathname).toBe(`/experiments/${ID}`));
    expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(keys).toEqual([keys[0], keys[0]]);
  });

  it("from another example has another idempotency key", async () => {
    const keys: (string | null)[] = [];
    await open("/experiments/new", {
      "POST /experiments": (request: Request) => {
        // The other text is checked after a pause, too.
        const isCheck = new URL(request.url).searchParams.has("dry_run");
        if (!isCheck) keys.push(request.headers.get("Idempotency-Key"));
        throw new TypeError("Failed to fetch");
      },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Create" }));
    await screen.findByRole("button", { name: "Try again" });
    await userEvent.click(screen.getByRole("combobox", { name: "Start from an example" }));
    await userEvent.click(
      await screen.findByText("Random search", { selector: "[role=option] *" }),
    );
    await userEvent.click(screen.getByRole("button", { name: "Create" }));
    await waitFor(() => expect(keys).toHaveLength(2));
    expect(keys[1]).not.toBe(keys[0]);
  });

  it("shows each error with its line", async () => {
    await open("/experiments/new", {
      "POST /experiments": problem(422, "Invalid experiment", "one thing is wrong", [
        { field: "space.training.learning_rate", message: "is not a list", value: null },
      ]),
    });
    await userEvent.click(await screen.findByRole("button", { name: "Create" }));
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("Invalid experiment");
    expect(within(alert).getByRole("button")).toHaveTextContent(
      "line 11space.training.learning_rate is not a list",
    );
    expect(router.state.location.pathname).toBe("/experiments/new");
  });

  it("begins with the spec of another", async () => {
    await open(`/experiments/new?from=${ID}`, page());
    expect(
      await screen.findByText(`Copied from digits learning rate (${ID}).`),
    ).toBeInTheDocument();
    expect(screen.getByTestId("editor")).toHaveTextContent("method: random");
  });

  it("of a job begins with its spec, and offers its parameters", async () => {
    const script = { path: "train.py", args: ["--lr", "0.1", "--wd", "0.5"] };
    const spec = { name: "net", code: "9f".repeat(32), script };
    const one = job({ name: "net", spec });
    const asked = await open("/jobs/3f2a9c51d07b", {
      "GET /training/jobs/3f2a9c51d07b": one,
      "POST /experiments": { name: "a", runs: 1, code_missing: true, configurations: [] },
    });
    await userEvent.click(await screen.findByRole("button", { name: "Experiment" }));
    expect(screen.queryByText("Benchmark this job")).toBeNull();
    await userEvent.click(
      await screen.findByText("Sweep this job", { selector: "[role=menuitem] *" }),
    );
    expect(
      await screen.findByText(/^A sweep of net \(3f2a9c51d07b\)\. It uses the code/),
    ).toBeVisible();
    expect(screen.getByDisplayValue("parameters.lr")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "parameters.wd" }));
    expect(screen.getByRole("textbox", { name: "Values of parameters.wd" })).toHaveValue("0.5");
    await userEvent.click(screen.getByRole("button", { name: "Check" }));
    expect(await screen.findByRole("alert")).toHaveTextContent(
      "job.code no code with this SHA-256 was uploaded",
    );
    const request = asked.find(({ method }) => method === "POST");
    expect(await request?.text()).toContain("parameters.wd: [0.5]");
  });
});
