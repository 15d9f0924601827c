import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { leaveTo } from "@/features/login/leave";
import { problem } from "../test/fake-api";
import { list, open } from "../test/open";
import { router } from "./router";

vi.mock("@/features/login/leave", () => ({ leaveTo: vi.fn() }));

const ME = { user: "maria", admin: false, how: "session", projects: [] };
const REFUSED = () => problem(401, "A valid credential is required", "this request has none");
const DONE = () => new Response(null, { status: 204 });
const CHALLENGE = "Abc123".padEnd(43, "x");

beforeEach(() => {
  localStorage.clear();
  vi.mocked(leaveTo).mockClear();
});

/** A coordinator with these ways to log in. */
function closed(oidc: string | null, password: boolean): Record<string, unknown> {
  let isIn = false;
  return {
    "GET /auth/methods": { oidc, password },
    "GET /auth/me": () => (isIn ? ME : REFUSED()),
    "GET /training/jobs": () => (isIn ? list() : REFUSED()),
    "GET /cluster/queue": () => (isIn ? { ...list(), total: 0 } : REFUSED()),
    "POST /auth/login": async (request: Request) => {
      const { name, password: given } = (await request.json()) as Record<string, string>;
      if (name !== "maria" || given !== "s3cret") return problem(401, "Refused", "it is wrong");
      isIn = true;
      return DONE();
    },
  };
}

describe("the login page", () => {
  it("logs in by a password, and returns to the page", async () => {
    await open("/queue", closed(null, true));
    await userEvent.type(await screen.findByLabelText("Name"), "maria");
    await userEvent.type(screen.getByLabelText("Password"), "wrong");
    await userEvent.click(screen.getByRole("button", { name: "Log in" }));
    expect(await screen.findByText("it is wrong")).toBeVisible();
    await userEvent.clear(screen.getByLabelText("Password"));
    await userEvent.type(screen.getByLabelText("Password"), "s3cret");
    await userEvent.click(screen.getByRole("button", { name: "Log in" }));
    await waitFor(() => expect(screen.queryByLabelText("Password")).toBeNull());
    expect(router.state.location.pathname).toBe("/queue");
  });

  it("links to the provider, which returns to the page", async () => {
    await open("/nodes?search=gpu", closed("Lab login", false));
    const link = await screen.findByRole("link", { name: "Log in with Lab login" });
    const next = encodeURIComponent("/nodes?search=gpu");
    expect(link).toHaveAttribute("href", `/api/v1/auth/oidc/login?next=${next}`);
    expect(screen.queryByLabelText("Password")).toBeNull();
  });

  it("offers links alone where there is nothing else", async () => {
    await open("/login", closed(null, false));
    expect(await screen.findByText("trainhall open")).toBeVisible();
    expect(screen.queryByText("or by a link")).toBeNull();
  });
});

describe("the page of a code", () => {
  const request = {
    user_code: "WDJB-MJHT",
    client: "gpu-07",
    address: "10.0.0.7",
    created_at: "2026-01-01T00:00:00Z",
  };

  it.each([
    ["Approve", true, "Login approved"],
    ["Refuse", false, "Login refused"],
  ])("asks whether commands may log in: %s", async (button, approve, title) => {
    const asked = await open("/login/device", {
      "GET /auth/me": ME,
      "GET /auth/device/WDJB-MJHT": request,
      "PUT /auth/device/WDJB-MJHT": DONE,
    });
    await userEvent.type(await screen.findByLabelText("Code"), "WDJB-MJHT");
    await userEvent.click(screen.getByRole("button", { name: "Continue" }));
    expect(await screen.findByText("gpu-07")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: button }));
    expect(await screen.findByRole("heading", { name: title })).toBeVisible();
    const sent = asked.find(({ method }) => method === "PUT");
    expect(await sent?.json()).toEqual({ approve });
  });

  it("says that a code is unknown", async () => {
    await open("/login/device", { "GET /auth/me": ME });
    await userEvent.type(await screen.findByLabelText("Code"), "BBBB-BBBB");
    await userEvent.click(screen.getByRole("button", { name: "Continue" }));
    expect(await screen.findByText(/Could not find the login/)).toBeVisible();
  });

  it("needs a login first, and is then shown", async () => {
    await open("/login/device", closed(null, true));
    await userEvent.type(await screen.findByLabelText("Name"), "maria");
    await userEvent.type(screen.getByLabelText("Password"), "s3cret");
    await userEvent.click(screen.getByRole("button", { name: "Log in" }));
    expect(await screen.findByLabelText("Code")).toBeVisible();
  });
});

describe("the page of commands on this host", () => {
  const path = `/login/commands?port=4321&challenge=${CHALLENGE}&state=s1&client=laptop`;

  it("hands them a code", async () => {
    const asked = await open(path, { "GET /auth/me": ME, "POST /auth/browser": { code: "c-1" } });
    expect(await screen.findByText("Abc123")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Approve" }));
    await waitFor(() => expect(leaveTo).toHaveBeenCalledOnce());
    expect(leaveTo).toHaveBeenCalledWith("http://127.0.0.1:4321/?state=s1&code=c-1");
    const sent = asked.find(({ method }) => method === "POST");
    expect(await sent?.json()).toEqual({ challenge: CHALLENGE });
  });

  it("tells them of a refusal", async () => {
    await open(path, { "GET /auth/me": ME });
    await userEvent.click(await screen.findByRole("button", { name: "Refuse" }));
    expect(leaveTo).toHaveBeenCalledWith("http://127.0.0.1:4321/?state=s1");
  });

  it("refuses an address that is not complete", async () => {
    await open("/login/commands?port=99999&challenge=x", { "GET /auth/me": ME });
    expect(await screen.findByText(/This address is not complete/)).toBeVisible();
  });
});
