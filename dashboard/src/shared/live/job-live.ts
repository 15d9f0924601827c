import type { QueryClient } from "@tanstack/react-query";
import { jobOptions } from "@/shared/api/get-job";
import { keys } from "@/shared/api/keys";
import { listEvents } from "@/shared/api/list-events";
import { readMetrics } from "@/shared/api/read-metrics";
import type { Job, JobEvent, Series } from "@/shared/api/types";
import { type Axis, type Range, stepsWithin } from "@/shared/curves/axis";
import type { Sample } from "@/shared/curves/series";
import { CurveStore } from "@/shared/curves/store";
import { toNumber } from "@/shared/format";
import { type Frame, JobStream, type Probe, type StreamStatus } from "@/shared/stream";
import { jobWideNames, TIMING } from "./metric-names";
import { Signal } from "./signal";

const HISTORY_POINTS = 1500;
/** Points of per-rank series that are loaded in all; many ranks get fewer each. */
const TIMING_BUDGET = 20_000;
/** The API takes so many names at once. */
const NAMES_AT_ONCE = 64;

/** A part of the job's steps, read exactly, and what came since. */
export interface Window {
  first: number;
  last: number;
  store: CurveStore;
  /** What is stored of it is there. */
  ready: boolean;
}

/**
 * One job as it is now: its curves, its events, and news for whoever follows its logs.
 *
 * Points are taken from the stream as they come. Everything else that the stream tells is a reason to
 * read on through REST, behind what was read before.
 */
export class JobLive {
  readonly curves = new CurveStore();
  readonly status = new Signal<StreamStatus>({ phase: "connecting", heardAt: null });
  readonly events = new Signal<JobEvent[]>([]);
  readonly logNews = new Signal(0);
  /** What is shown of the steps, when it is not all of them. */
  readonly window = new Signal<Window | null>(null);
  private wanted: { range: Range; axis: Axis } | null = null;
  private readonly stream: JobStream;
  private readingEvents: Promise<void> | null = null;
  private moreEvents = false;

  constructor(
    private readonly jobId: string,
    private readonly queries: QueryClient,
    /** Which of the series that every rank has are read. */
    private readonly timing: readonly string[] = TIMING,
  ) {
    this.stream = new JobStream({
      url: (after) => streamUrl(jobId, after),
      reload: () => this.reload(),
      deliver: (frames) => this.deliver(frames),
      onStatus: (status) => this.onStatus(status),
      probe: () => this.probe(),
    });
  }

  start(): void {
    this.stream.start();
  }

  stop(): void {
    this.stream.stop();
  }

  retryNow = (): void => this.stream.retryNow();

  /** Read everything through REST. What it holds already is kept until the answers are there. */
  private async reload(): Promise<void> {
    const job = await this.queries.fetchQuery({ ...jobOptions(this.jobId), staleTime: 0 });
    const [history] = await Promise.all([this.readHistory(job, {}), this.readEvents()]);
    this.curves.clear();
    fill(this.curves, history);
    this.renewLists();
    this.logNews.update((news) => news + 1);
    await this.readWindow();
  }

  private async readHistory(
    job: Job,
    steps: { fromStep?: number; toStep?: number },
  ): Promise<Series[]> {
    const jobWide = jobWideNames(job.metrics);
    const parts: Promise<Series[]>[] = [];
    for (let i = 0; i < jobWide.length; i += NAMES_AT_ONCE) {
      const names = jobWide.slice(i, i + NAMES_AT_ONCE);
      parts.push(readMetrics(this.jobId, { names, maxPoints: HISTORY_POINTS, ...steps }));
    }
    const maxPoints = timingPoints(job, this.timing.length);
    parts.push(readMetrics(this.jobId, { names: this.timing, maxPoints, ...steps }));
    return (await Promise.all(parts)).flat();
  }

  /**
   * Show a part of an axis: what is stored of its steps is read as exactly as a chart can draw it, and
   * live points that fall into it are added. Null: show everything again.
   */
  zoom(range: Range | null, axis: Axis): void {
    this.wanted = range === null ? null : { range, axis };
    void this.readWindow().catch(ignoreUntilNextTime);
  }

  private async readWindow(): Promise<void> {
    const job = this.queries.getQueryData<Job>(keys.job(this.jobId));
    const { wanted } = this;
    if (wanted === null) return this.window.update(() => null);
    const origin = originOf(job);
    const steps = stepsWithin(wanted.range, wanted.axis, this.curves.longest(), origin);
    if (job === undefined || steps === null || steps.last < steps.first) return;
    const shown: Window = { ...steps, store: new CurveStore(), ready: false };
    this.window.update(() => shown);
    const history = await this.readHistory(job, { fromStep: steps.first, toStep: steps.last });
    if (this.window.value !== shown) return;
    fill(shown.store, history);
    this.window.update(() => ({ ...shown, ready: true }));
  }

  private deliver(frames: Frame[]): void {
    let news = false;
    let lines = false;
    for (const frame of frames) {
      if (frame.type === "metrics") this.takePoints(frame);
      else if (frame.type === "log") lines = true;
      else news = true;
      if (frame.type === "state") this.takeState(frame);
    }
    if (lines) this.logNews.update((count) => count + 1);
    if (news) {
      void this.readEvents().catch(ignoreUntilNextTime);
      this.renewLists();
    }
  }

  private takePoints(frame: Frame): void {
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

  /** Show a new state at once; the rest of the job is read again. */
  private takeState(frame: Frame): void {
    this.queries.setQueryData<Job>(keys.job(this.jobId), (job) =>
      job === undefined
        ? job
        : {
            ...job,
            state: (frame.state as Job["state"]) ?? job.state,
            reason: typeof frame.reason === "string" ? frame.reason : job.reason,
          },
    );
  }

  private renewLists(): void {
    // The job itself, its attempts and its checkpoints share the beginning of their keys.
    void this.queries.invalidateQueries({ queryKey: keys.job(this.jobId) });
  }

  /** One reader at a time; news while it reads make it read once more. */
  private readEvents(): Promise<void> {
    if (this.readingEvents) {
      this.moreEvents = true;
      return this.readingEvents;
    }
    this.readingEvents = this.readOn().finally(() => {
      this.readingEvents = null;
    });
    return this.readingEvents;
  }

  private async readOn(): Promise<void> {
    do {
      this.moreEvents = false;
      const last = this.events.value.at(-1)?.seq ?? 0;
      const fresh = await listEvents(this.jobId, last);
      if (fresh.length > 0) this.events.update((events) => [...events, ...fresh]);
    } while (this.moreEvents);
  }

  /** The job through REST, which also renews what the page shows of it. */
  private async probe(): Promise<Probe> {
    const job = await this.queries.fetchQuery({
      ...jobOptions(this.jobId),
      staleTime: 0,
      retry: 0,
    });
    const last = this.curves.get("loss")?.last;
    return last !== undefined && last !== null && job.step > last.step ? "behind" : "current";
  }

  private onStatus(status: StreamStatus): void {
    const before = this.status.value.phase;
    this.status.update(() => status);
    // Logs are read through REST, which may have failed while the coordinator was away.
    if (status.phase === "live" && before !== "live") this.logNews.update((news) => news + 1);
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

/** Where the elapsed time of a job is 0, in seconds since the epoch. */
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

/** The next frame, or the next connection, reads what could not be read now. */
function ignoreUntilNextTime(): void {}
