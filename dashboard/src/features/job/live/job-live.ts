import type { QueryClient } from "@tanstack/react-query";
import { jobOptions } from "@/shared/api/get-job";
import { keys } from "@/shared/api/keys";
import { readMetrics } from "@/shared/api/read-metrics";
import type { Job, JobEvent, Series } from "@/shared/api/types";
import type { Sample } from "@/shared/curves/series";
import { CurveStore } from "@/shared/curves/store";
import { toNumber } from "@/shared/format";
import { type Frame, JobStream, type Probe, type StreamStatus } from "@/shared/stream";
import { listEvents } from "../api/list-events";
import { customNames, LEARNING, TIMING } from "./metric-names";
import { Signal } from "./signal";

const HISTORY_POINTS = 1500;
/** Points of per-rank series that are loaded in all; many ranks get fewer each. */
const TIMING_BUDGET = 20_000;

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
  private readonly stream: JobStream;
  private readingEvents: Promise<void> | null = null;
  private moreEvents = false;

  constructor(
    private readonly jobId: string,
    private readonly queries: QueryClient,
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
    const [learning, timing] = await Promise.all([
      readMetrics(this.jobId, {
        names: [...LEARNING, ...customNames(job.metrics)],
        maxPoints: HISTORY_POINTS,
      }),
      readMetrics(this.jobId, { names: TIMING, maxPoints: timingPoints(job) }),
      this.readEvents(),
    ]);
    this.curves.clear();
    this.fill(learning);
    this.fill(timing);
    this.renewLists();
    this.logNews.update((news) => news + 1);
  }

  private fill(series: Series[]): void {
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
      this.curves.append(name, rank ?? null, samples);
    }
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
    for (const [name, rows] of Object.entries(points)) {
      this.curves.append(
        name,
        rank,
        rows.map(([step, time, value]) => ({
          step,
          time: typeof time === "number" ? time : Date.parse(time) / 1000,
          value: toNumber(value),
        })),
      );
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

function timingPoints(job: Job): number {
  const series = TIMING.length * (job.world_size + 1);
  return Math.max(50, Math.min(HISTORY_POINTS, Math.floor(TIMING_BUDGET / series)));
}

function streamUrl(jobId: string, after: number): string {
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  const path = `/api/v1/metrics/stream/${encodeURIComponent(jobId)}?after=${after}`;
  return `${scheme}://${window.location.host}${path}`;
}

/** The next frame, or the next connection, reads what could not be read now. */
function ignoreUntilNextTime(): void {}
