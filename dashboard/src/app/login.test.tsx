import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it } from "vitest";
import { problem } from "../test/fake-api";
import { list, open } from "../test/open";
import { router } from "./router";

const VISION = { name: "vision", role: "member" };
const ME = { user: "maria", admin: true, how: "session", projects: [VISION] };
const REFUSED = () => problem(401, "A valid credential is required", "this request has none");
const JOBS = { "GET /training/jobs": list() };

beforeEach(() => localStorage.clear());

/** A coordinator that takes one code, once. */
function closed(code: string): Record<string, unknown> {
  let isIn = false;
  const guarded = (answer: unknown) => () => (isIn ? answer : REFUSED());
  return {
    "GET /auth/me": guarded(ME),
    "GET /training/jobs": guarded(list()),
    "GET /metrics/cluster/summary": guarded({}),
    "GET /cluster/queue": guarded({ ...list(), total: 0 }),
    "POST /auth/link": async (request: Request) => {
      const body = (await request.json()) as { code: string };
      if (isIn || body.code !== code) return problem(401, "Refused", "the link was used before");
      isIn = true;
      return new Response(null, { status: 204 });
    },
    "POST /auth/logout": () => {
      isIn = false;
      return new Response(null, { status: 204 });
    },
  };
}

describe("the login", () => {
  it("takes the code of the link out of the address", async () => {
    const asked = await open("/login#code=a-b_1", closed("a-b_1"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs"));
    expect(router.history.location.href).not.toContain("code");
    expect(asked.filter(({ url }) => url.endsWith("/auth/link"))).toHaveLength(1);
    expect(await screen.findByRole("button", { name: "User maria" })).toBeVisible();
  });

  it("says how to log in, and returns to the page", async () => {
    await open("/queue", closed("abc"));
    expect(await screen.findByText("trainhall open")).toBeVisible();
    expect(screen.queryByRole("navigation")).toBeNull();
    const link = "http://127.0.0.1:8000/login#code=abc";
    await userEvent.type(screen.getByLabelText("Or paste the link here"), link);
    await userEvent.click(screen.getByRole("button", { name: "Log in" }));
    await waitFor(() => expect(screen.queryByText("trainhall open")).toBeNull());
    expect(router.state.location.pathname).toBe("/queue");
  });

  it("is asked for when the session ends, and returns to the page", async () => {
    let isIn = true;
    const guarded = (answer: unknown) => () => (isIn ? answer : REFUSED());
    await open("/queue?mine=true", {
      ...closed("abc"),
      "GET /auth/me": guarded(ME),
      "GET /metrics/cluster/summary": guarded({}),
      "GET /cluster/queue": guarded({ ...list(), total: 0 }),
      "POST /auth/link": () => {
        isIn = true;
        return new Response(null, { status: 204 });
      },
    });
    expect(await screen.findByRole("heading", { name: "Queue" })).toBeVisible();
    isIn = false;
    const link = "http://127.0.0.1:8000/login#code=abc";
    await userEvent.type(await screen.findByLabelText("Or paste the link here"), link);
    await userEvent.click(screen.getByRole("button", { name: "Log in" }));
    expect(await screen.findByRole("heading", { name: "Queue" })).toBeVisible();
    expect(router.state.location.href).toBe("/queue?mine=true");
  });

  it("says why a link is refused", async () => {
    await open("/login#code=old", closed("new"));
    expect(await screen.findByText(/the link was used before/)).toBeVisible();
    expect(router.history.location.href).toBe("/login");
  });

  it("goes to no address of another host", async () => {
    localStorage.setItem("trainhall-page", "//evil.example/jobs");
    await open("/login#code=abc", closed("abc"));
    await waitFor(() => expect(router.state.location.pathname).toBe("/jobs"));
  });
});

describe("the menu of the user", () => {
  it("logs out", async () => {
    await open("/login#code=abc", closed("abc"));
    await userEvent.click(await screen.findByRole("button", { name: "User maria" }));
    await userEvent.click(await screen.findByText("Log out", { selector: "[role=menuitem] *" }));
    expect(await screen.findByText("trainhall open")).toBeVisible();
  });

  it("is absent where no login is needed", async () => {
    await open("/jobs", { ...JOBS, "GET /auth/me": { ...ME, how: "none" } });
    expect(await screen.findByRole("navigation")).toBeVisible();
    expect(screen.queryByRole("button", { name: /^User/ })).toBeNull();
  });
});
