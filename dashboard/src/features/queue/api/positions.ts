import type { QueuePosition } from "@/client";

interface Entry {
  /** Null: a job of another project, whose history is not read. */
  job_id: string | null;
  history?: QueuePosition[] | null;
}

interface Known {
  history: QueuePosition[];
  /** Time up to which they are known, in milliseconds; 0: unknown. */
  until: number;
  round: number;
}

/** Most positions of a job before all of it is read again: the API thins them out to 24. */
export const MOST_KEPT = 96;

/** Positions of waiting jobs over time, put together from the changes since they were last read. */
export class Positions {
  private readonly known = new Map<string, Known>();
  private round = 0;

  /** Begins to read all pages again; forgets jobs that were on none of them the last time, and long
   * histories, which a page that stays open for days would draw and keep. */
  begin(): void {
    for (const [id, { round, history }] of this.known) {
      if (round < this.round || history.length > MOST_KEPT) this.known.delete(id);
    }
    this.round += 1;
  }

  /** The time since when all changes are to be read; undefined: nothing is known. */
  since(): string | undefined {
    const times = [...this.known.values()].map(({ until }) => until);
    const first = Math.min(...times);
    return times.length > 0 && first > 0 ? new Date(first).toISOString() : undefined;
  }

  has(id: string | null): boolean {
    return id === null || this.known.has(id);
  }

  /** Adds the history of a page; the page with the whole history of its jobs. */
  add<E extends Entry>(items: E[], isWhole: boolean): E[] {
    const read = items.flatMap(({ history }) => (history ?? []).flatMap(timesOf));
    const before = items.flatMap(({ job_id: id }) =>
      id === null ? [] : (this.known.get(id)?.until ?? 0),
    );
    const until = Math.max(0, ...read, ...(isWhole ? [] : before));
    return items.map((item) => {
      const { job_id: id } = item;
      if (id === null) return item;
      const changes = item.history ?? [];
      const earlier = isWhole ? [] : (this.known.get(id)?.history ?? []);
      const history = joined(earlier, changes);
      this.known.set(id, { history, until, round: this.round });
      return { ...item, history };
    });
  }
}

function timesOf({ since, until }: QueuePosition): number[] {
  return [Date.parse(since), ...(until === null ? [] : [Date.parse(until)])];
}

function joined(earlier: QueuePosition[], changes: QueuePosition[]): QueuePosition[] {
  const [first] = changes;
  if (first === undefined) return earlier;
  return [
    ...earlier.filter(({ since }) => Date.parse(since) < Date.parse(first.since)),
    ...changes,
  ];
}
