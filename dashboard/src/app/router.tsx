import { createRootRoute, createRoute, createRouter, redirect } from "@tanstack/react-router";
import { auditSearch } from "@/features/audit/search";
import type { KindOnJob } from "@/features/experiments/create/from-job";
import { type TrialSearch, trialSearch } from "@/features/experiments/detail/charts/selection";
import type { TrialSort } from "@/features/experiments/detail/trials";
import { isLineId } from "@/features/job/logs/line-id";
import { type Tab, tabOf } from "@/features/job/tabs";
import { type Filter, isFilter } from "@/features/jobs/filters";
import { type GroupBy, isGroupBy } from "@/features/jobs/groups/groups";
import { type ColumnsSearch, columnsOf } from "@/features/jobs/table/columns";
import type { Sort } from "@/features/jobs/table/sort";
import { ledgerSearch } from "@/features/ledger/search";
import { LoginPage } from "@/features/login/login-page";
import { whatIfSearch } from "@/features/what-if/question";
import { type CurveView, curveView } from "@/shared/curves/controls/view";
import type { Spread } from "@/shared/curves/data/curve";
import { isSpread } from "@/shared/curves/data/spread";
import { rememberedScope, type Scope, scopeOf } from "@/shared/owners/scope";
import { lazyComponent } from "@/shared/page/lazy-component";
import { Broken } from "./broken";
import { Missing } from "./missing";
import { Root } from "./root";
import { parseSearch, stringifySearch } from "./search";

const root = createRootRoute({ component: Root, notFoundComponent: Missing });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/jobs", search: rememberedScope() });
  },
});

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  component: LoginPage,
});

/** Approval of commands that show a code. */
const deviceLogin = createRoute({
  getParentRoute: () => root,
  path: "/login/device",
  component: lazyComponent(() => import("@/features/login/device-page")),
});

interface CommandsSearch {
  /** Where `trainhall login` listens on this host. */
  port?: number | undefined;
  challenge?: string | undefined;
  state?: string | undefined;
  /** Name of the host, as the commands give it. */
  client?: string | undefined;
}

/** Approval of commands on the host of this browser. */
const commandsLogin = createRoute({
  getParentRoute: () => root,
  path: "/login/commands",
  validateSearch: (raw): CommandsSearch => ({
    ...(isWithin(raw.port, 1, 65_535) ? { port: raw.port } : {}),
    ...(raw.challenge ? { challenge: String(raw.challenge).slice(0, 64) } : {}),
    ...(raw.state ? { state: String(raw.state).slice(0, 64) } : {}),
    ...(raw.client ? { client: String(raw.client).slice(0, 128) } : {}),
  }),
  component: lazyComponent(() => import("@/features/login/commands-page")),
});

interface JobsSearch extends ColumnsSearch, Scope {
  show?: Filter | undefined;
  search?: string | undefined;
  /** As the coordinator parses it: `state:failed lr>0.01`. */
  query?: string | undefined;
  /** Left out: the newest first. */
  sort?: Sort | undefined;
  /** Left out: the jobs themselves. */
  group?: GroupBy | undefined;
  /** Ids of the jobs selected to be compared, separated by commas. */
  selected?: string | undefined;
}

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (raw): JobsSearch => ({
    ...(isFilter(raw.show) ? { show: raw.show } : {}),
    ...(raw.search ? { search: String(raw.search) } : {}),
    ...(raw.query ? { query: String(raw.query).slice(0, 1000) } : {}),
    ...(raw.sort ? { sort: String(raw.sort).slice(0, 256) } : {}),
    ...(isGroupBy(raw.group) ? { group: raw.group } : {}),
    ...(raw.selected ? { selected: String(raw.selected) } : {}),
    ...columnsOf(raw),
    ...scopeOf(raw),
  }),
  component: lazyComponent(() => import("@/features/jobs/jobs-page")),
});

interface JobSearch extends CurveView {
  tab?: Tab | undefined;
  /** Curves: the metric of the heat map of ranks; left out: the time of a step. */
  heat?: string | undefined;
  /** Logs: only one rank, stream or attempt. */
  rank?: number | undefined;
  stream?: "stdout" | "stderr" | undefined;
  attempt?: number | undefined;
  /** Logs: the text to find, and the highlighted line. Outputs: words of paths. */
  find?: string | undefined;
  line?: string | undefined;
  /** Outputs: the path of the file that is shown. */
  file?: string | undefined;
  /** Outputs: only files of the host with this lowest rank. */
  host?: number | undefined;
  /** Logs: show the time of each line. */
  times?: boolean | undefined;
  /** Logs: break long lines. */
  wrap?: boolean | undefined;
}

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  validateSearch: (raw): JobSearch => ({
    ...tabOf(raw.tab),
    ...curveView(raw),
    ...(raw.heat ? { heat: String(raw.heat).slice(0, 256) } : {}),
    ...(isWithin(raw.rank, 0, 1e6) ? { rank: raw.rank } : {}),
    ...(raw.stream === "stdout" || raw.stream === "stderr" ? { stream: raw.stream } : {}),
    ...(isWithin(raw.attempt, 1, 1e9) ? { attempt: raw.attempt } : {}),
    ...(raw.find ? { find: String(raw.find).slice(0, 256) } : {}),
    ...(isLineId(raw.line) ? { line: raw.line } : {}),
    ...(raw.file ? { file: String(raw.file).slice(0, 1024) } : {}),
    ...(isWithin(raw.host, 0, 1e6) ? { host: raw.host } : {}),
    ...(raw.times === true ? { times: true } : {}),
    ...(raw.wrap === true ? { wrap: true } : {}),
  }),
  component: lazyComponent(() => import("@/features/job/job-page")),
});

interface CompareSearch extends CurveView {
  /** Their ids, separated by commas. */
  jobs?: string | undefined;
  /** The mean of jobs that differ in their seeds alone, with this band; left out: each job. */
  seeds?: Spread | undefined;
}

const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  validateSearch: (raw): CompareSearch => ({
    ...(raw.jobs ? { jobs: String(raw.jobs) } : {}),
    ...(isSpread(raw.seeds) ? { seeds: raw.seeds } : {}),
    ...curveView(raw),
  }),
  component: lazyComponent(() => import("@/features/compare/compare-page")),
});

const reports = createRoute({
  getParentRoute: () => root,
  path: "/reports",
  validateSearch: scopeOf,
  component: lazyComponent(() => import("@/features/reports/reports-page")),
});

interface ReportSearch {
  /** Left out: it is read. */
  edit?: true | undefined;
}

const report = createRoute({
  getParentRoute: () => root,
  path: "/reports/$reportId",
  validateSearch: (raw): ReportSearch => (raw.edit === true ? { edit: true } : {}),
  component: lazyComponent(() => import("@/features/reports/report-page")),
});

interface NewReportSearch {
  /** A chart to begin with, or to add to the draft; the preview shows what is wrong with it. */
  chart?: Record<string, unknown> | undefined;
}

const newReport = createRoute({
  getParentRoute: () => root,
  path: "/reports/new",
  validateSearch: (raw): NewReportSearch =>
    typeof raw.chart === "object" && raw.chart !== null ? { chart: { ...raw.chart } } : {},
  component: lazyComponent(() => import("@/features/reports/new-report-page")),
});

interface NodesSearch {
  search?: string | undefined;
  /** Names of the opened nodes, separated by commas; left out: all, if they have few devices. */
  open?: string | undefined;
  /** Left out: the grid for many nodes, the table for few. */
  view?: "grid" | "table" | undefined;
}

const nodes = createRoute({
  getParentRoute: () => root,
  path: "/nodes",
  validateSearch: (raw): NodesSearch => ({
    ...(raw.search ? { search: String(raw.search) } : {}),
    ...(raw.open === undefined ? {} : { open: String(raw.open) }),
    ...(raw.view === "grid" || raw.view === "table" ? { view: raw.view } : {}),
  }),
  component: lazyComponent(() => import("@/features/nodes/nodes-page")),
});

const queue = createRoute({
  getParentRoute: () => root,
  path: "/queue",
  validateSearch: scopeOf,
  component: lazyComponent(() => import("@/features/queue/queue-page")),
});

const ledger = createRoute({
  getParentRoute: () => root,
  path: "/ledger",
  validateSearch: ledgerSearch,
  component: lazyComponent(() => import("@/features/ledger/ledger-page")),
});

const whatIf = createRoute({
  getParentRoute: () => root,
  path: "/what-if",
  validateSearch: whatIfSearch,
  component: lazyComponent(() => import("@/features/what-if/what-if-page")),
});

const alerts = createRoute({
  getParentRoute: () => root,
  path: "/alerts",
  component: lazyComponent(() => import("@/features/alerts/alerts-page")),
});

const experiments = createRoute({
  getParentRoute: () => root,
  path: "/experiments",
  validateSearch: scopeOf,
  component: lazyComponent(() => import("@/features/experiments/list/experiments-page")),
});

interface ExperimentSearch extends TrialSearch {
  /** Left out: the trials. */
  tab?: "analysis" | "spec" | undefined;
  /** The order of the trials; left out: by number. */
  sort?: TrialSort | undefined;
  /** The field on the chart's horizontal axis, or `time`; left out: the trial's number. */
  x?: string | undefined;
  /** The metric on its vertical axis; left out: the objective. */
  y?: string | undefined;
}

const experiment = createRoute({
  getParentRoute: () => root,
  path: "/experiments/$experimentId",
  validateSearch: (raw): ExperimentSearch => ({
    ...(raw.tab === "spec" || raw.tab === "analysis" ? { tab: raw.tab } : {}),
    ...(raw.sort ? { sort: String(raw.sort).slice(0, 256) } : {}),
    ...(raw.x ? { x: String(raw.x).slice(0, 256) } : {}),
    ...(raw.y ? { y: String(raw.y).slice(0, 256) } : {}),
    ...trialSearch(raw),
  }),
  component: lazyComponent(() => import("@/features/experiments/detail/experiment-page")),
});

interface NewExperimentSearch {
  /** Begin with the spec of this experiment. */
  from?: string | undefined;
  /** Begin with an experiment on this job. */
  job?: string | undefined;
  /** Its kind; left out: a sweep. */
  kind?: KindOnJob | undefined;
}

const newExperiment = createRoute({
  getParentRoute: () => root,
  path: "/experiments/new",
  validateSearch: (raw): NewExperimentSearch => ({
    ...(raw.from ? { from: String(raw.from) } : {}),
    ...(raw.job ? { job: String(raw.job) } : {}),
    ...(raw.kind === "sweep" || raw.kind === "benchmark" ? { kind: raw.kind } : {}),
  }),
  component: lazyComponent(() => import("@/features/experiments/create/new-experiment-page")),
});

const projects = createRoute({
  getParentRoute: () => root,
  path: "/projects",
  component: lazyComponent(() => import("@/features/people/projects-page")),
});

const project = createRoute({
  getParentRoute: () => root,
  path: "/projects/$project",
  component: lazyComponent(() => import("@/features/people/project-page")),
});

interface UsersSearch {
  /** Those who were removed, in place of the others. */
  removed?: true | undefined;
}

const users = createRoute({
  getParentRoute: () => root,
  path: "/users",
  validateSearch: (raw): UsersSearch => (raw.removed === true ? { removed: true } : {}),
  component: lazyComponent(() => import("@/features/people/users-page")),
});

const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  component: lazyComponent(() => import("@/features/account/tokens-page")),
});

const secrets = createRoute({
  getParentRoute: () => root,
  path: "/secrets",
  component: lazyComponent(() => import("@/features/account/secrets-page")),
});

const sessions = createRoute({
  getParentRoute: () => root,
  path: "/sessions",
  component: lazyComponent(() => import("@/features/account/sessions-page")),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  validateSearch: auditSearch,
  component: lazyComponent(() => import("@/features/audit/audit-page")),
});

interface NewSearch {
  /** Begin with the spec of this job. */
  from?: string | undefined;
}

const submit = createRoute({
  getParentRoute: () => root,
  path: "/new",
  validateSearch: (raw): NewSearch => (raw.from ? { from: String(raw.from) } : {}),
  component: lazyComponent(() => import("@/features/submit/submit-page")),
});

export const router = createRouter({
  routeTree: root.addChildren([
    home,
    login,
    deviceLogin,
    commandsLogin,
    jobs,
    job,
    compare,
    experiments,
    newExperiment,
    experiment,
    reports,
    newReport,
    report,
    queue,
    nodes,
    ledger,
    whatIf,
    alerts,
    submit,
    projects,
    project,
    users,
    tokens,
    secrets,
    sessions,
    audit,
  ]),
  defaultErrorComponent: Broken,
  defaultPreload: "intent",
  parseSearch,
  stringifySearch,
  // Otherwise a page gets parameters that its route does not declare.
  search: { strict: true },
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
