/** A job whose command was refused, or got no answer. */
export interface Refusal {
  id: string;
  why: string;
}

export interface Outcome {
  done: string[];
  refused: Refusal[];
}

const AT_ONCE = 6;

/** Sends a command to each job, a few at a time; a refusal does not stop the others. */
export async function forEachJob(
  ids: readonly string[],
  send: (id: string) => Promise<unknown>,
): Promise<Outcome> {
  const results = new Map<string, string | null>();
  const waiting = [...ids];
  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      try {
        await send(id);
        results.set(id, null);
      } catch (error) {
        results.set(id, error instanceof Error ? error.message : String(error));
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const of = (id: string) => results.get(id) ?? null;
  return {
    done: ids.filter((id) => of(id) === null),
    refused: ids.flatMap((id) => {
      const why = of(id);
      return why === null ? [] : [{ id, why }];
    }),
  };
}
