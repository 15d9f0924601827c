import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import type { ClusterNode, Device } from "@/shared/api/types";
import { shown } from "@/test/shown";
import { DeviceTable } from "./device-table";
import { DrainButton } from "./drain-button";
import { NodeEvents } from "./node-events";
import { NodeGrid } from "./node-grid";
import { ProjectsButton } from "./projects-button";

const NODE = {
  id: "n1",
  name: "gpu-07",
  state: "ready",
  drain_reason: null,
  refused_commands: {},
  devices: [{ index: 0, busy: true, job_id: "j1" }],
  host: { container_engine: "podman 5.4.2" },
} as unknown as ClusterNode;

const sent = (asked: Request[], path: string) =>
  waitFor(() => {
    const found = asked.find(({ method, url }) => method === "POST" && url.endsWith(path));
    expect(found).toBeDefined();
    return found as Request;
  });

it("a node is drained by a dialog that takes a reason", async () => {
  const asked = shown(<DrainButton node={NODE} />, { "POST /cluster/nodes/n1/drain": NODE });
  await userEvent.click(screen.getByRole("button", { name: "Drain gpu-07" }));
  const dialog = within(await screen.findByRole("dialog", { name: "Drain gpu-07?" }));
  expect(dialog.getByText(/1 job on it will save and move/)).toBeInTheDocument();
  expect(asked.filter(({ method }) => method === "POST")).toEqual([]);
  await userEvent.type(dialog.getByLabelText("Reason"), " a new disk ");
  await userEvent.click(dialog.getByRole("button", { name: "Drain node" }));
  expect(await (await sent(asked, "/n1/drain")).json()).toEqual({ reason: "a new disk" });
});

it("a drained node is undrained without a dialog", async () => {
  const drained = { ...NODE, state: "drained", drain_reason: "a new disk" } as ClusterNode;
  const asked = shown(<DrainButton node={drained} />, { "POST /cluster/nodes/n1/undrain": NODE });
  await userEvent.click(screen.getByRole("button", { name: "Undrain gpu-07" }));
  await sent(asked, "/n1/undrain");
});

it("the events of a node are listed, the newest first", async () => {
  const event = (state: string, reason: string) => ({
    time: "2026-01-01T00:00:00Z",
    state,
    code: "reports",
    reason,
  });
  shown(<NodeEvents id="n1" name="gpu-07" />, {
    "GET /cluster/nodes/n1/events": {
      items: [event("ready", "agent connected"), event("drained", "a new disk")],
      next_cursor: null,
    },
  });
  const [head, ...rows] = within(
    await screen.findByRole("table", { name: "Events of gpu-07" }),
  ).getAllByRole("row");
  expect(head).toHaveTextContent(/^Time \(UTC.*\)StateReason$/);
  expect(rows.map((row) => row.lastElementChild?.textContent)).toEqual([
    "a new disk",
    "agent connected",
  ]);
});

it("a grid has a tile for each node, which opens its devices", async () => {
  const other = { ...NODE, id: "n2", name: "gpu-08", state: "lost", labels: {} } as ClusterNode;
  const onOpen = vi.fn();
  const list = { nodes: [NODE, other], opened: ["gpu-08"], onOpen, onClose: vi.fn() };
  shown(<NodeGrid {...list} />, {});
  const name = /^gpu-07.*utilization.*1 of 1 devices busy$/;
  await userEvent.click(await screen.findByRole("button", { name }));
  expect(onOpen).toHaveBeenCalledWith("gpu-07");
  expect(screen.getByRole("region", { name: "Node gpu-08" })).toBeVisible();
});

it("a device that its host no longer reports is marked as gone", async () => {
  const there = { index: 0, kind: "cpu", name: "EPYC", busy: false, job_id: null, gone: false };
  const devices = [there, { ...there, index: 1, gone: true }] as unknown as Device[];
  shown(<DeviceTable node="gpu-07" devices={devices} />, {});
  const [, first, second] = within(
    await screen.findByRole("table", { name: "Devices of gpu-07" }),
  ).getAllByRole("row");
  expect(first?.firstElementChild).toHaveTextContent(/^0 EPYC$/);
  expect(second?.firstElementChild).toHaveTextContent(/^1 EPYC, gone$/);
});

it("a device names no job of another project", async () => {
  const base = { kind: "cpu", name: "EPYC", gone: false, busy: true, index: 0 };
  const foreign = { ...base, job_id: null, job_name: null, job_user: null, job_project: null };
  const own = { ...base, index: 1, job_id: "b2", job_name: "tiny" };
  const devices = [foreign, { ...own, job_user: "maria", job_project: "vision" }];
  shown(<DeviceTable node="gpu-07" devices={devices as unknown as Device[]} />, {});
  const [, first, second] = within(
    await screen.findByRole("table", { name: "Devices of gpu-07" }),
  ).getAllByRole("row");
  expect(first).toHaveTextContent("a job of another project");
  expect(within(first as HTMLElement).queryByRole("link")).toBeNull();
  expect(second).toHaveTextContent("tinymaria · vision");
});

it("an admin limits a node to projects", async () => {
  const projects = ["speech", "vision"].map((name) => ({ name, role: "maintainer" }));
  const asked = shown(<ProjectsButton node={{ ...NODE, projects: ["vision"] }} />, {
    "GET /auth/me": { user: "ada", admin: true, how: "session", projects },
    [`PATCH /cluster/nodes/${NODE.id}`]: NODE,
  });
  await userEvent.click(screen.getByRole("button", { name: "Projects of gpu-07" }));
  await userEvent.click(await screen.findByRole("checkbox", { name: "speech" }));
  await userEvent.click(screen.getByRole("button", { name: "Save projects" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  await userEvent.click(screen.getByRole("button", { name: "Projects of gpu-07" }));
  await userEvent.click(await screen.findByRole("radio", { name: "all projects" }));
  await userEvent.click(screen.getByRole("button", { name: "Save projects" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const changes = asked.filter(({ method }) => method === "PATCH");
  expect(await Promise.all(changes.map((request) => request.json()))).toEqual([
    { projects: ["vision", "speech"] },
    { projects: null },
  ]);
});

it("only an admin drains nodes", async () => {
  const maria = { user: "maria", admin: false, how: "session", projects: [] };
  shown(<DrainButton node={NODE} />, { "GET /auth/me": maria });
  const button = screen.getByRole("button", { name: "Drain gpu-07" });
  await waitFor(() =>
    expect(button).toHaveAccessibleDescription("This takes an admin. Admins can make you one."),
  );
  await userEvent.click(button);
  expect(screen.queryByRole("dialog")).toBeNull();
});

it("a node says of which projects it takes jobs", async () => {
  const limited = (projects: string[]) => [{ ...NODE, labels: {}, projects } as ClusterNode];
  const list = { opened: ["gpu-07"], onOpen: vi.fn(), onClose: vi.fn() };
  shown(<NodeGrid nodes={limited(["speech", "vision"])} {...list} />, {});
  expect(await screen.findByText(/jobs of speech, vision only/)).toBeVisible();
  expect(screen.getByText(/containers by podman 5.4.2/)).toBeVisible();
  shown(<NodeGrid nodes={limited([])} {...list} />, {});
  expect(await screen.findByText(/jobs of other projects only/)).toBeVisible();
});
