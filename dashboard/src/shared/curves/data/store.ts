import { CurveSeries, MAX_SAMPLES, type Sample } from "./series";

/** Points of all series together, since hundreds of ranks would fill the browser's memory. */
export const MAX_POINTS = 240_000;
/** Points of each series at least, so that it stays a curve. */
const MIN_SAMPLES = 300;

let created = 0;

/** All series of one job. Charts subscribe and draw from it; React holds none of the points. */
export class CurveStore {
  private readonly series = new Map<string, CurveSeries>();
  private readonly listeners = new Set<() => void>();
  private scheduled = false;
  /** Unique on this page. */
  readonly id = ++created;
  /** Rises with every announced change. */
  version = 0;

  get(name: string, rank: number | null = null): CurveSeries | undefined {
    return this.series.get(key(name, rank));
  }

  /** The ranks that have a series of this name, in order. */
  ranks(name: string): number[] {
    const found: number[] = [];
    for (const each of this.series.keys()) {
      const [rank, ...rest] = each.split("/");
      if (rest.join("/") === name && rank !== "job") found.push(Number(rank));
    }
    return found.sort((a, b) => a - b);
  }

  /** The names of all series that have points. */
  names(): string[] {
    const found = new Set<string>();
    for (const [each, { length }] of this.series) {
      if (length > 0) found.add(each.slice(each.indexOf("/") + 1));
    }
    return [...found];
  }

  /** The names of the series of the job as a whole that have points. */
  jobWideNames(): string[] {
    return this.names().filter((name) => this.get(name)?.length);
  }

  /** The series with the most points, the best one to map times to steps. */
  longest(): CurveSeries | undefined {
    let found: CurveSeries | undefined;
    for (const each of this.series.values()) {
      if (each.length > (found?.length ?? 0)) found = each;
    }
    return found;
  }

  /** The job's series with a point at every step, as far as one has. */
  stepwise(): CurveSeries | undefined {
    return this.get("loss") ?? this.get("step_seconds") ?? this.longest();
  }

  /** Last value of a job-wide series. */
  latest(name: string): number | null {
    return this.get(name)?.last?.value ?? null;
  }

  append(name: string, rank: number | null, samples: Iterable<Sample>): void {
    const id = key(name, rank);
    let series = this.series.get(id);
    if (series === undefined) {
      series = new CurveSeries();
      this.series.set(id, series);
      this.limitSeries();
    }
    if (series.append(samples)) this.announce();
  }

  /** Divides the points in all equally among the series. */
  private limitSeries(): void {
    const each = Math.max(MIN_SAMPLES, Math.floor(MAX_POINTS / this.series.size));
    for (const series of this.series.values()) series.limit = Math.min(MAX_SAMPLES, each);
  }

  /** Drops everything, as after a reset. */
  clear(): void {
    this.series.clear();
    this.announce();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Notifies listeners once per turn, however many frames a message holds. */
  private announce(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    queueMicrotask(() => {
      this.scheduled = false;
      this.version += 1;
      for (const listener of this.listeners) listener();
    });
  }
}

function key(name: string, rank: number | null): string {
  return `${rank === null ? "job" : rank}/${name}`;
}
