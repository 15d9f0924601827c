import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { problem } from "@/test/fake-api";
import { list, open } from "@/test/open";

const ALERT = {
  id: "c41d09be72aa",
  name: "failed jobs",
  on: ["job.failed", "job.waiting"],
  scope: { kind: "project", value: "vision" },
  waiting_seconds: 7200,
  disk_percent: 90,
  target: { kind: "slack", url: "https://hooks.slack.com/…" },
  enabled: true,
  reason: "",
  failing_since: null,
  created_at: "2026-01-01T00:00:00Z",
};
const DISABLED = {
  ...ALERT,
  id: "d41d09be72aa",
  name: "mails",
  scope: { kind: "cluster", value: null },
  target: { kind: "mail", url: "mailto:maria@lab" },
  enabled: false,
  reason: "its target failed for 3 days: no answer within 10 s",
};

async function bodyOf(asked: Request[], method: string): Promise<unknown> {
  await waitFor(() => expect(asked.some((request) => request.method === method)).toBe(true));
  return asked.find((request) => request.method === method)?.json();
}

describe("the alerts", () => {
  it("are listed with conditions, scope, target and state", async () => {
    await open("/alerts", { "GET /alerts": list(ALERT, DISABLED) });
    const row = (await screen.findByText("failed jobs")).closest("tr");
    expect(row).toHaveTextContent("Job failed, Job waiting too long");
    expect(row).toHaveTextContent("Project vision");
    expect(row).toHaveTextContent("Slack https://hooks.slack.com/…");
    expect(row).toHaveTextContent("enabled");
    const other = screen.getByText("mails").closest("tr");
    expect(other).toHaveTextContent("Mail maria@lab");
    expect(other).toHaveTextContent("disabledits target failed for 3 days");
    expect(document.title).toBe("Alerts · Trainhall");
  });

  it("are created, and a webhook's secret is shown", async () => {
    const asked = await open("/alerts", {
      "GET /alerts": list(),
      "POST /alerts": { ...ALERT, secret: "whsec_abc" },
    });
    await screen.findByText("No alerts yet");
    await userEvent.click(screen.getAllByRole("button", { name: "New alert" })[0] as HTMLElement);
    await userEvent.type(await screen.findByLabelText("Name"), "hook");
    await userEvent.click(screen.getByLabelText("Node down"));
    await userEvent.selectOptions(screen.getByLabelText("Send to"), "Webhook");
    await userEvent.type(screen.getByRole("textbox", { name: /^URL/ }), "https://lab/hook");
    await userEvent.click(screen.getByRole("button", { name: "Create alert" }));
    expect(await screen.findByText("whsec_abc")).toBeVisible();
    expect(await bodyOf(asked, "POST")).toEqual({
      name: "hook",
      on: ["job.failed", "node.down"],
      scope: { kind: "cluster" },
      waiting_seconds: 3600,
      disk_percent: 90,
      target: { kind: "webhook", url: "https://lab/hook" },
    });
  });

  it("are about a project at most for who is no admin", async () => {
    const projects = [{ name: "vision", role: "viewer" }];
    const asked = await open("/alerts", {
      "GET /auth/me": { user: "maria", admin: false, how: "session", projects },
      "GET /alerts": list(),
      "POST /alerts": { ...ALERT, secret: null },
    });
    await screen.findByText("No alerts yet");
    await userEvent.click(screen.getAllByRole("button", { name: "New alert" })[0] as HTMLElement);
    await userEvent.type(await screen.findByLabelText("Name"), "mine");
    const scopes = within(screen.getByLabelText("Scope")).getAllByRole("option");
    expect(scopes.map(({ textContent }) => textContent)).toEqual(["Project", "User", "Job"]);
    await userEvent.click(screen.getByRole("button", { name: "Create alert" }));
    const scope = { kind: "project", value: "vision" };
    expect(await bodyOf(asked, "POST")).toMatchObject({ scope });
  });

  it("show why they cannot be created", async () => {
    await open("/alerts", {
      "GET /alerts": list(),
      "POST /alerts": problem(422, "Invalid request", "target.url: x", [
        { field: "target.url", message: "is not a public address" },
      ]),
    });
    await userEvent.click((await screen.findAllByText("New alert"))[0] as HTMLElement);
    await userEvent.type(await screen.findByLabelText("Name"), "hook");
    await userEvent.click(screen.getByRole("button", { name: "Create alert" }));
    expect(await screen.findByText("is not a public address")).toBeVisible();
  });

  it("keep a target whose URL is not shown when they are changed", async () => {
    const asked = await open("/alerts", {
      "GET /alerts": list(ALERT),
      [`PATCH /alerts/${ALERT.id}`]: { ...ALERT, secret: null },
    });
    await userEvent.click(await screen.findByText("failed jobs"));
    expect(await screen.findByLabelText("Longest wait in the queue")).toHaveValue("120 min");
    await userEvent.click(screen.getByLabelText("Job stuck"));
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    const body = (await bodyOf(asked, "PATCH")) as Record<string, unknown>;
    expect(body).not.toHaveProperty("target");
    expect(body.on).toEqual(["job.failed", "job.waiting", "job.stuck"]);
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });

  it("are tested, disabled and deleted", async () => {
    const asked = await open("/alerts", {
      "GET /alerts": list(ALERT),
      [`POST /alerts/${ALERT.id}/test`]: {},
      [`PATCH /alerts/${ALERT.id}`]: { ...ALERT, secret: null },
      [`DELETE /alerts/${ALERT.id}`]: new Response(null, { status: 204 }),
    });
    await userEvent.click(await screen.findByLabelText("Send a test message of failed jobs"));
    expect(await screen.findByText(/^Test message of failed jobs queued/)).toBeVisible();
    await userEvent.click(screen.getByLabelText("Disable failed jobs"));
    expect(await bodyOf(asked, "PATCH")).toEqual({ enabled: false });
    await userEvent.click(screen.getByLabelText("Delete failed jobs"));
    await userEvent.click(await screen.findByRole("button", { name: "Delete the alert" }));
    await waitFor(() => expect(asked.some(({ method }) => method === "DELETE")).toBe(true));
  });

  it("have a log of their messages", async () => {
    const delivery = {
      id: "msg_1",
      condition: "job.failed",
      text: "“digits” (3f2a9c51d07b) failed",
      subjects: [],
      subject_count: 1,
      state: "pending",
      tries: 2,
      status: 500,
      error: "HTTP 500: oops",
      created_at: "2026-01-01T00:00:00Z",
      next_try_at: "2026-01-01T00:00:10Z",
      finished_at: null,
    };
    await open("/alerts", {
      "GET /alerts": list(ALERT),
      [`GET /alerts/${ALERT.id}/deliveries`]: list(delivery),
    });
    await userEvent.click(await screen.findByLabelText("Log of failed jobs"));
    const log = await screen.findByRole("table", { name: "Messages of failed jobs" });
    expect(log).toHaveTextContent("2 tries: HTTP 500: oops · will be tried again");
    expect(within(log).getByRole("link", { name: "digits" })).toHaveAttribute(
      "href",
      "/jobs/3f2a9c51d07b",
    );
  });
});
