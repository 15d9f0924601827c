/**
 * The live store of a job's page.
 *
 *     websocket ─▶ JobStream ─▶ JobLive ─┬▶ curves, window: CurveStore ─▶ Chart (uPlot)
 *     REST ──────────────────────────────┼▶ events, status: Signal ─────▶ React components
 *                                        ├▶ logVersion: Signal ─────────▶ LogFeed, LogSearch ─▶ LogView
 *                                        └▶ query cache (job, attempts, checkpoints, …)
 *
 * - `JobStream` (job-stream.ts) delivers the frames of the websocket in order, each once, over
 *   reconnects, and asks for a full reload through REST when frames are no longer available.
 * - `JobLive` is one per job and page (`useJobLive`). It appends the points of `metrics` frames to
 *   `curves`. All other frames carry no data of their own: they make it read the new events, invalidate
 *   the job's queries, or raise `logVersion`. REST stays the source of truth, so a missed frame delays
 *   an update and corrupts nothing.
 * - `CurveStore` holds a job's series in bounded memory (`CurveSeries` merges neighbours into buckets).
 *   React never holds points: charts subscribe to the store and draw from it at their own pace. `window`
 *   is a second store in full resolution while the charts are zoomed.
 * - `Signal` is a value with subscribers (`useSignal`), for the few values that React renders at once.
 * - `LogFeed` and `LogSearch` (features/job/logs) exist while the Logs tab is open. They page through
 *   the log by REST cursors, and `logVersion` wakes them for new lines.
 *
 * Why not a store library: points arrive many times a second, and charts must draw them without a
 * render of React. The rest would fit into one, but it is 30 lines (`Signal`).
 */

import type { QueryClient } from "@tanstack/react-query";
import { aboutJob, jobKey, jobOptions, readEvents, readSeries } from "@/shared/api/jobs";
import type { Job, JobEvent, Series } from "@/shared/api/types";
import { type Axis, metricOf, type Range, stepsWithin } from "@/shared/curves/data/axis";
import type { Sample } from "@/shared/curves/data/series";
import { CurveStore } from "@/shared/curves/data/store";
import { toNumber } from "@/shared/format";
import { type Frame, JobStream, type Probe, type StreamStatus } from "./job-stream";
import { jobWideNames, TIMING } from "./metric-names";
import { Signal } from "./signal";

const HISTORY_POINTS = 1500;
/** Points of per-rank series in all; with many ranks each gets fewer. */
const TIMING_BUDGET = 20_000;
/** Names per request that the API accepts. */
const NAMES_AT_ONCE = 64;

/** A zoomed range of steps in full resolution, with live points added. */
interface Window {
  first: number;
  last: number;
  store: CurveStore;
  /** The stored points are loaded. */
  ready: boolean;
}

/** One job as it is now: its curves, its events, and a signal for new log lines. */
export class JobLive {
  readonly curves = new CurveStore();
  readonly status = new Signal<StreamStatus>({ phase: "connecting", lastResponseAt: null });
  readonly events = new Signal<JobEvent[]>([]);
  readonly logVersion = new Signal(0);
  /** The zoomed range; null: everything is shown. */
  readonly window = new Signal<Window | null>(null);
  private zoomed: { range: Range; axis: Axis } | null = null;
  private readonly stream: JobStream;
  private readingEvents: Promise<void> | null = null;
  private eventsOutdated = false;

  constructor(
    private readonly jobId: string,
    private readonly queries: QueryClient,
    /** The per-rank series to read. */
    private readonly timing: readonly string[] = TIMING,
  ) {
    this.stream = new JobStream({
      url: (after) => streamUrl(jobId, after),
      reload: () => this.reload(),
      deliver: (frames) => this.deliver(frames),
      onStatus: (status) => this.onStatus(status),
      probe: (signal) => this.probe(signal),
    });
  }

  start(): void {
    this.stream.start();
  }

  stop(): void {
    this.stream.stop();
  }

  retryNow = (): void => this.stream.retryNow();

  /** Reads everything through REST. The old data stays until the responses are there. */
  private async reload(): Promise<void> {
    const job = await this.queries.fetchQuery({ ...jobOptions(this.jobId), staleTime: 0 });
    const [history] = await Promise.all([this.readHistory(job, {}), this.readEvents()]);
    this.curves.clear();
    fill(this.curves, history);
    this.invalidateQueries();
    this.logVersion.update((version) => version + 1);
    await this.readWindow();
  }

  private async readHistory(
    job: Job,
    steps: { from_step?: number; to_step?: number },
  ): Promise<Series[]> {
    const jobWide = jobWideNames(job.metrics);
    const parts: Promise<Series[]>[] = [];
    for (let i = 0; i < jobWide.length; i += NAMES_AT_ONCE) {
      const names = jobWide.slice(i, i + NAMES_AT_ONCE);
      parts.push(readSeries(this.jobId, { names, max_points: HISTORY_POINTS, ...steps }));
    }
    const max_points = timingPoints(job, this.timing.length);
    parts.push(readSeries(this.jobId, { names: [...this.timing], max_points, ...steps }));
    return (await Promise.all(parts)).flat();
  }

  /**
   * Zooms into a range of an axis: its points are read in the full resolution of a chart, and live points
   * within it are added. Null: show everything again.
   */
  zoom(range: Range | null, axis: Axis): void {
    this.zoomed = range === null ? null : { range, axis };
    void this.readWindow().catch(ignoreUntilNextTime);
  }

  private async readWindow(): Promise<void> {
    const job = this.queries.getQueryData<Job>(jobKey(this.jobId));
    const { zoomed } = this;
    if (zoomed === null) return this.window.update(() => null);
    const origin = originOf(job);
    const metric = metricOf(zoomed.axis);
    const series = metric === null ? this.curves.longest() : this.curves.get(metric);
    const steps = stepsWithin(zoomed.range, zoomed.axis, series, origin);
    if (job === undefined || steps === null || steps.last < steps.first) return;
    const shown: Window = { ...steps, store: new CurveStore(), ready: false };
    this.window.update(() => shown);
    const history = await this.readHistory(job, { from_step: steps.first, to_step: steps.last });
    if (this.window.value !== shown) return;
    fill(shown.store, history);
    this.window.update(() => ({ ...shown, ready: true }));
  }

  private deliver(frames: Frame[]): void {
    let changed = false;
    let lines = false;
    for (const frame of frames) {
      if (frame.type === "metrics") this.appendPoints(frame);
      else if (frame.type === "log") lines = true;
      else changed = true;
    }
    if (lines) this.logVersion.update((version) => version + 1);
    if (changed) {
      void this.readEvents().catch(ignoreUntilNextTime);
      this.invalidateQueries();
    }
  }

  private appendPoints(frame: Frame): void {
    const rank = typeof frame.rank === "number" ? frame.rank : null;
    const points = frame.points as Record<string, [number, number | string, number | string][]>;
    const shown = this.window.value;
    for (const [name, rows] of Object.entries(points)) {
      const samples = rows.map(
        ([step, time, value]): Sample => ({
          step,
          time: typeof time === "number" ? time : Date.parse(time) / 1000,
          value: toNumber(value),
        }),
      );
      this.curves.append(name, rank, samples);
      if (shown === null) continue;
      const inside = samples.filter(({ step }) => step >= shown.first && step <= shown.last);
      if (inside.length > 0) shown.store.append(name, rank, inside);
    }
  }

  private invalidateQueries(): void {
    void this.queries.invalidateQueries({ queryKey: aboutJob(this.jobId) });
  }

  /** One reader at a time; a frame that arrives meanwhile makes it read once more. */
  private readEvents(): Promise<void> {
    if (this.readingEvents) {
      this.eventsOutdated = true;
      return this.readingEvents;
    }
    this.readingEvents = this.readNewEvents().finally(() => {
      this.readingEvents = null;
    });
    return this.readingEvents;
  }

  private async readNewEvents(): Promise<void> {
    do {
      this.eventsOutdated = false;
      const last = this.events.value.at(-1)?.seq ?? 0;
      const fresh = await readEvents(this.jobId, last);
      if (fresh.length > 0) this.events.update((events) => [...events, ...fresh]);
    } while (this.eventsOutdated);
  }

  /** Reads the job through REST, which also updates the page. */
  private async probe(signal: AbortSignal): Promise<Probe> {
    // `fetchQuery` joins a request under way, so one without a response must end here.
    signal.addEventListener("abort", () => {
      void this.queries.cancelQueries({ queryKey: jobKey(this.jobId), exact: true });
    });
    const job = await this.queries.fetchQuery({
      ...jobOptions(this.jobId),
      staleTime: 0,
      retry: 0,
    });
    // A cancelled query returns its old data.
    signal.throwIfAborted();
    const last = this.curves.stepwise()?.last;
    return last !== undefined && last !== null && job.step > last.step ? "behind" : "current";
  }

  private onStatus(status: StreamStatus): void {
    const before = this.status.value.phase;
    this.status.update(() => status);
    if (status.phase !== "live" || before === "live") return;
    // Reading logs or a window may have failed while the coordinator was away.
    this.logVersion.update((version) => version + 1);
    if (this.window.value?.ready === false) void this.readWindow().catch(ignoreUntilNextTime);
  }
}

function fill(store: CurveStore, series: Series[]): void {
  for (const { name, rank, points } of series) {
    const samples = points.map(
      (point): Sample => ({
        step: point.step,
        time: Date.parse(point.time) / 1000,
        value: toNumber(point.value),
        min: toNumber(point.min),
        max: toNumber(point.max),
      }),
    );
    store.append(name, rank ?? null, samples);
  }
}

/** The zero of a job's relative time, in seconds since the epoch. */
export function originOf(job: Pick<Job, "started_at" | "created_at"> | undefined): number {
  return job === undefined ? 0 : Date.parse(job.started_at ?? job.created_at) / 1000;
}

function timingPoints(job: Job, names: number): number {
  const series = names * (job.world_size + 1);
  return Math.max(50, Math.min(HISTORY_POINTS, Math.floor(TIMING_BUDGET / series)));
}

function streamUrl(jobId: string, after: number): string {
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  const path = `/api/v1/metrics/stream/${encodeURIComponent(jobId)}?after=${after}`;
  return `${scheme}://${window.location.host}${path}`;
}

/** The next frame or connection retries. */
function ignoreUntilNextTime(): void {}
