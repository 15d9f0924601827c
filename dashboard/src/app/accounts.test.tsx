import { notifications } from "@mantine/notifications";
import { cleanup, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { job, json, problem } from "../test/fake-api";
import { list, open } from "../test/open";
import { router } from "./router";

const PROJECTS = [
  { name: "text", role: "viewer" },
  { name: "vision", role: "maintainer" },
];
const MARIA = { user: "maria", admin: false, how: "session", projects: PROJECTS };
const ADMIN = { ...MARIA, user: "ada", admin: true };
const CREATED = "2026-01-01T00:00:00Z";
const gone = () => new Response(null, { status: 204 });

beforeEach(() => {
  localStorage.clear();
  // Refusals stay until they are closed.
  return () => notifications.clean();
});

const bodies = (asked: Request[], method: string) =>
  Promise.all(
    asked
      .filter((request) => request.method === method)
      .map(async (request) => [new URL(request.url).pathname, await request.json()]),
  );

describe("the scope of a list", () => {
  it("is in the URL, in the request and in the links", async () => {
    const answers = { "GET /auth/me": MARIA, "GET /training/jobs": list(job()) };
    const asked = await open("/jobs", answers);
    expect(await screen.findByRole("row", { name: /digits.*maria.*default/ })).toBeVisible();
    await userEvent.click(await screen.findByRole("radio", { name: "Mine" }));
    await userEvent.selectOptions(screen.getByLabelText("Project"), "vision");
    const wanted = 'user=me project="vision"';
    await waitFor(() => {
      const queries = asked.map(({ url }) => new URL(url).searchParams.get("query"));
      expect(queries).toContain(wanted);
    });
    expect(router.state.location.search).toEqual({ mine: true, project: "vision" });
    expect(screen.getByRole("link", { name: "Experiments" })).toHaveAttribute(
      "href",
      "/experiments?mine=true&project=vision",
    );
  });

  it("reduces experiments, reports and the queue", async () => {
    for (const [path, resource] of [
      ["/experiments", "/experiments"],
      ["/reports", "/reports"],
      ["/queue", "/cluster/queue"],
    ] as const) {
      const asked = await open(`${path}?mine=true&project=vision`, {
        "GET /auth/me": MARIA,
        [`GET ${resource}`]: { ...list(), total: 0 },
      });
      expect(await screen.findByRole("heading", { name: /matches$/ })).toBeVisible();
      const found = asked.find(({ url }) => new URL(url).pathname === `/api/v1${resource}`);
      const query = new URL(found?.url ?? "").searchParams;
      expect([query.get("user"), query.get("project")]).toEqual(["me", "vision"]);
      document.body.replaceChildren();
    }
  });

  it("is not asked for where there is one user and one project", async () => {
    const alone = { ...ADMIN, how: "none", projects: [{ name: "default", role: "maintainer" }] };
    await open("/jobs", { "GET /auth/me": alone, "GET /training/jobs": list(job()) });
    expect(await screen.findByText("digits")).toBeVisible();
    expect(screen.queryByRole("radio", { name: "Mine" })).toBeNull();
    expect(screen.queryByLabelText("Project")).toBeNull();
  });
});

describe("a new job", () => {
  const spec = { name: "digits", user: "jo", project: "vision", task: { name: "digits" } };
  const body = async (asked: Request[]) => {
    await waitFor(() => expect(asked.some(({ method }) => method === "POST")).toBe(true));
    return asked.find(({ method }) => method === "POST")?.text();
  };

  it("is in the chosen project, if one may submit there", async () => {
    for (const [project, found] of [
      ["vision", "name: digits\nproject: vision\ntask:\n"],
      ["text", "name: digits\ntask:\n"],
    ] as const) {
      localStorage.setItem("trainhall-scope", JSON.stringify({ project }));
      const asked = await open("/new", { "GET /auth/me": MARIA });
      await screen.findByRole("button", { name: "User maria" });
      await userEvent.click(await screen.findByRole("button", { name: "Check" }));
      expect(await body(asked)).toMatch(found);
      cleanup();
    }
  });

  it("like that of another user has no owner", async () => {
    const asked = await open("/new?from=3f2a9c51d07b", {
      "GET /auth/me": MARIA,
      "GET /training/jobs/3f2a9c51d07b": job({ user: "jo", project: "vision", spec }),
    });
    await userEvent.click(await screen.findByRole("button", { name: "Check" }));
    const text = await body(asked);
    expect(text).toContain("project: vision");
    expect(text).not.toContain("user:");
  });

  it("takes the role member, and says so", async () => {
    const viewer = { ...MARIA, projects: [{ name: "text", role: "viewer" }] };
    await open("/new", { "GET /auth/me": viewer });
    expect(await screen.findByText(/^This takes the role member in a project/)).toBeVisible();
    expect(screen.getByRole("button", { name: "Submit" })).toBeDisabled();
  });
});

it("an empty list tells a user without a role who gives one", async () => {
  const stranger = { ...MARIA, projects: [] };
  await open("/jobs", { "GET /auth/me": stranger, "GET /training/jobs": list() });
  expect(await screen.findByText(/^You have no role in a project yet/)).toBeVisible();
});

it("the menu of the user has roles and pages", async () => {
  await open("/jobs", { "GET /auth/me": MARIA, "GET /training/jobs": list() });
  await userEvent.click(await screen.findByRole("button", { name: "User maria" }));
  const vision = await screen.findByText("vision", { selector: "[role=menuitem] *" });
  expect(vision.closest("a")).toHaveAttribute("href", "/projects/vision");
  const items = [...document.querySelectorAll("[role=menuitem]")];
  const names = items.map(({ textContent }) => textContent);
  expect(names).toEqual([
    "textviewer",
    "visionmaintainer",
    "Projects",
    "Users and groups",
    "Audit",
    "API tokens",
    "Your secrets",
    "Sessions",
    "Log out",
  ]);
});

it("a refusal shows which role is needed", async () => {
  const detail =
    "to change jobs of others in project vision takes the role maintainer; you have member; a maintainer of vision or an admin can give it";
  await open("/jobs/3f2a9c51d07b", {
    "GET /auth/me": MARIA,
    "GET /training/jobs/3f2a9c51d07b": job(),
    "PUT /training/jobs/3f2a9c51d07b/pause": () => problem(403, "Not allowed", detail),
  });
  await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
  expect(await screen.findByText(detail)).toBeVisible();
  expect(screen.getByRole("link", { name: "maria" })).toHaveAttribute(
    "href",
    "/jobs?query=user%3D%22maria%22",
  );
});

describe("the API tokens", () => {
  const TOKEN = {
    id: "t1",
    name: "ci",
    created_at: CREATED,
    expires_at: null,
    used_at: null,
    project: "vision",
    role: "viewer",
    scopes: null,
  };

  it("are created narrowed, shown once and revoked", async () => {
    const asked = await open("/tokens", {
      "GET /auth/me": MARIA,
      "GET /auth/tokens": list(TOKEN),
      "POST /auth/tokens": () => json({ ...TOKEN, token: "th_secret" }, 201),
      "DELETE /auth/tokens/t1": gone,
    });
    expect(await screen.findByText("viewer at most, in project vision")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "New token" }));
    await userEvent.type(await screen.findByLabelText(/^Name/), "nightly");
    await userEvent.selectOptions(screen.getByLabelText("Project"), "text");
    await userEvent.selectOptions(screen.getByLabelText("Allows at most"), "viewer");
    await userEvent.click(screen.getByRole("button", { name: "Create token" }));
    expect(await screen.findByText("th_secret")).toBeVisible();
    const [[, body]] = (await bodies(asked, "POST")) as [[string, Record<string, string>]];
    expect(body).toMatchObject({ name: "nightly", project: "text", role: "viewer" });
    // Not a date: the browser's clock may be wrong.
    expect(body).toMatchObject({ expires_in: 90 * 86_400 });
    await userEvent.click(screen.getByRole("button", { name: "Done" }));
    await waitFor(() => expect(screen.queryByText("th_secret")).toBeNull());
    await userEvent.click(screen.getByRole("button", { name: "Revoke ci" }));
    await userEvent.click(await screen.findByRole("button", { name: "Revoke token" }));
    await waitFor(() => expect(asked.some(({ method }) => method === "DELETE")).toBe(true));
  });
});

it("sessions are ended but for one's own", async () => {
  const session = { client: "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", created_at: CREATED };
  const times = { used_at: CREATED, expires_at: CREATED };
  const asked = await open("/sessions", {
    "GET /auth/me": MARIA,
    "GET /auth/sessions": list(
      { ...session, ...times, id: "s1", current: true },
      { ...session, ...times, id: "s2", current: false, client: "curl/8" },
    ),
    "DELETE /auth/sessions/s2": gone,
  });
  const own = await screen.findByRole("button", { name: "End the session in Firefox on Linux" });
  expect(own).toHaveAccessibleDescription(/Log out/);
  await userEvent.click(screen.getByRole("button", { name: "End the session in curl/8" }));
  await waitFor(() =>
    expect(asked.some(({ method, url }) => method === "DELETE" && url.endsWith("/s2"))).toBe(true),
  );
});

describe("a project", () => {
  const project = {
    name: "vision",
    role: "maintainer",
    limits: { devices: 8, priority: 5, paths: [] },
    configured: ["priority"],
    created_at: CREATED,
  };
  const members = list(
    { member: "group:lab", kind: "group", role: "viewer" },
    { member: "jo", kind: "person", role: "member" },
  );
  const answers = {
    "GET /projects/vision": project,
    "GET /projects/vision/members": members,
    "PUT /projects/vision/members/jo": gone,
    "PUT /projects/vision/members/group%3Alab2": gone,
    "PATCH /projects/vision": project,
  };

  it("has members, whose roles a maintainer sets", async () => {
    const asked = await open("/projects/vision", { ...answers, "GET /auth/me": MARIA });
    expect(await screen.findByText(/^at most 8 devices;/)).toBeVisible();
    expect(screen.getByRole("button", { name: "Change limits" })).toHaveAccessibleDescription(
      "This takes an admin. Admins can make you one.",
    );
    await userEvent.selectOptions(await screen.findByLabelText("Role of jo"), "maintainer");
    await userEvent.click(screen.getByRole("button", { name: "Add a member" }));
    const dialog = within(await screen.findByRole("dialog"));
    await userEvent.selectOptions(dialog.getByLabelText("Kind"), "group");
    await userEvent.type(dialog.getByLabelText("Name"), "lab2");
    await userEvent.click(dialog.getByRole("button", { name: "Add member" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    expect(await bodies(asked, "PUT")).toEqual([
      ["/api/v1/projects/vision/members/jo", { role: "maintainer" }],
      ["/api/v1/projects/vision/members/group%3Alab2", { role: "member" }],
    ]);
  });

  it("has limits, which an admin sets", async () => {
    const asked = await open("/projects/vision", { ...answers, "GET /auth/me": ADMIN });
    await userEvent.click(await screen.findByRole("button", { name: "Change limits" }));
    const devices = await screen.findByLabelText("Most devices of a job");
    expect(screen.getByLabelText("Highest priority")).toBeDisabled();
    expect(screen.getByLabelText("Highest priority")).toHaveAccessibleDescription(
      "Set in trainhall.toml",
    );
    await userEvent.clear(devices);
    await userEvent.type(devices, "16");
    await userEvent.click(screen.getByRole("button", { name: "Save limits" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const limits = { devices: 16 }; // what was not typed stays: no folder is allowed
    expect(await bodies(asked, "PATCH")).toEqual([["/api/v1/projects/vision", { limits }]]);
  });

  it("shows a member no command", async () => {
    const viewer = { ...MARIA, projects: [{ name: "vision", role: "viewer" }] };
    await open("/projects/vision", { ...answers, "GET /auth/me": viewer });
    const row = await screen.findByRole("row", { name: /jo/ });
    expect(within(row).queryByRole("combobox")).toBeNull();
    expect(screen.getByRole("button", { name: "Remove jo" })).toHaveAccessibleDescription(
      /role maintainer in project vision; you have viewer/,
    );
  });

  it("that is not as expected leaves the other pages in reach", async () => {
    const spies = (["error", "warn"] as const).map((level) =>
      vi.spyOn(console, level).mockImplementation(() => undefined),
    );
    const broken = { ...project, limits: null };
    await open("/projects/vision", {
      ...answers,
      "GET /projects/vision": broken,
      "GET /auth/me": MARIA,
    });
    expect(await screen.findByText("The page could not be shown")).toBeVisible();
    expect(screen.getByRole("link", { name: "Queue" })).toBeVisible();
    for (const spy of spies) spy.mockRestore();
  });

  it("that is not visible is not found", async () => {
    await open("/projects/secret", { "GET /auth/me": MARIA });
    expect(await screen.findByText("Project not found")).toBeVisible();
  });
});

describe("the users", () => {
  const user = (name: string, change = {}) => ({
    name,
    kind: "person",
    admin: false,
    project: null,
    created_at: CREATED,
    removed_at: null,
    ...change,
  });
  const answers = {
    "GET /users": list(user("jo"), user("ci", { kind: "service", project: "vision" })),
    "GET /groups": list({ name: "lab", members: 2, created_at: CREATED }),
    "GET /groups/lab/members": list({ user: "jo", by_provider: false }),
    "POST /users": () => json(user("new"), 201),
    "PATCH /users/jo": user("jo", { admin: true }),
    "DELETE /users/jo": gone,
    "PUT /groups/lab/members/mo": gone,
  };

  it("are added, changed and removed by an admin", async () => {
    const asked = await open("/users", { ...answers, "GET /auth/me": ADMIN });
    expect(await screen.findByText("service account of vision")).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Make admin: jo" }));
    await userEvent.click(screen.getByRole("button", { name: "New user" }));
    await userEvent.type(await screen.findByLabelText("Name"), "new");
    await userEvent.click(screen.getByRole("button", { name: "Add user" }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    await userEvent.click(screen.getByRole("button", { name: "Remove jo" }));
    await userEvent.click(await screen.findByRole("button", { name: "Remove user" }));
    await waitFor(() => expect(asked.some(({ method }) => method === "DELETE")).toBe(true));
    expect(await bodies(asked, "PATCH")).toEqual([["/api/v1/users/jo", { admin: true }]]);
    const added = { name: "new", kind: "person", admin: false, password: null };
    expect(await bodies(asked, "POST")).toEqual([["/api/v1/users", added]]);
  });

  it("are put into groups", async () => {
    const asked = await open("/users", { ...answers, "GET /auth/me": ADMIN });
    await userEvent.click(await screen.findByRole("button", { name: "Users of lab" }));
    const dialog = within(await screen.findByRole("dialog"));
    await userEvent.type(await dialog.findByLabelText("User"), "mo");
    await userEvent.click(dialog.getByRole("button", { name: "Add user" }));
    await waitFor(() =>
      expect(asked.some(({ url }) => url.endsWith("/groups/lab/members/mo"))).toBe(true),
    );
  });
});

it("the audit log is filtered by the URL", async () => {
  const record = {
    id: 7,
    time: CREATED,
    user: "maria",
    how: "token",
    credential: "ci",
    address: "10.0.0.5",
    action: "job.cancel",
    kind: "job",
    object: "3f2a9c51d07b",
    project: "vision",
    outcome: "done",
    detail: "",
    fields: { priority: [0, 5] },
  };
  const refused = {
    ...record,
    id: 6,
    outcome: "forbidden",
    detail: "takes an admin",
    fields: null,
  };
  const asked = await open("/audit?user=maria&hours=24", {
    "GET /auth/me": ADMIN,
    "GET /audit": list(record, refused),
  });
  const row = await screen.findByRole("row", { name: /done/ });
  expect(row).toHaveTextContent("token ci from 10.0.0.5");
  expect(row).toHaveTextContent("priority: 0 → 5");
  expect(screen.getByRole("row", { name: /refused/ })).toHaveTextContent("takes an admin");
  await userEvent.type(screen.getByLabelText("Action"), "job");
  await waitFor(() => expect(router.state.location.search).toMatchObject({ action: "job" }));
  const query = asked
    .map(({ url }) => new URL(url))
    .filter(({ pathname }) => pathname.endsWith("/audit"))
    .at(-1)?.searchParams;
  expect([query?.get("user"), query?.get("action")]).toEqual(["maria", "job"]);
  expect(query?.get("since")).toBeTruthy();
});
