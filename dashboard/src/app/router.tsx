import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import { isTab, type Tab } from "@/features/job/tabs";
import { type Filter, isFilter } from "@/features/jobs/filters";
import { Missing } from "./missing";
import { Shell } from "./shell";

const root = createRootRoute({ component: Shell, notFoundComponent: Missing });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/jobs" });
  },
});

export interface JobsSearch {
  show?: Filter | undefined;
  search?: string | undefined;
}

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (raw): JobsSearch => ({
    ...(isFilter(raw.show) ? { show: raw.show } : {}),
    ...(raw.search ? { search: String(raw.search) } : {}),
  }),
  component: lazyRouteComponent(() => import("@/features/jobs/jobs-page")),
});

export interface JobSearch {
  tab?: Tab | undefined;
  /** Curves: what is on the horizontal axis, how smooth, and whether the loss is logarithmic. */
  x?: "time" | undefined;
  smooth?: number | undefined;
  log?: boolean | undefined;
  /** Logs: of one rank, one stream, one attempt only. */
  rank?: number | undefined;
  stream?: "stdout" | "stderr" | undefined;
  attempt?: number | undefined;
}

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  validateSearch: (raw): JobSearch => ({
    ...(isTab(raw.tab) ? { tab: raw.tab } : {}),
    ...(raw.x === "time" ? { x: "time" as const } : {}),
    ...(isWithin(raw.smooth, 0, 0.99) ? { smooth: raw.smooth } : {}),
    ...(raw.log === true ? { log: true } : {}),
    ...(isWithin(raw.rank, 0, 1e6) ? { rank: raw.rank } : {}),
    ...(raw.stream === "stdout" || raw.stream === "stderr" ? { stream: raw.stream } : {}),
    ...(isWithin(raw.attempt, 1, 1e9) ? { attempt: raw.attempt } : {}),
  }),
  component: lazyRouteComponent(() => import("@/features/job/job-page")),
});

const nodes = createRoute({
  getParentRoute: () => root,
  path: "/nodes",
  component: lazyRouteComponent(() => import("@/features/nodes/nodes-page")),
});

export interface NewSearch {
  /** Begin with the spec of this job. */
  from?: string | undefined;
}

const submit = createRoute({
  getParentRoute: () => root,
  path: "/new",
  validateSearch: (raw): NewSearch => (raw.from ? { from: String(raw.from) } : {}),
  component: lazyRouteComponent(() => import("@/features/submit/submit-page")),
});

export const router = createRouter({
  routeTree: root.addChildren([home, jobs, job, nodes, submit]),
  defaultPreload: "intent",
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

function isWithin(value: unknown, low: number, high: number): value is number {
  return typeof value === "number" && value >= low && value <= high;
}
