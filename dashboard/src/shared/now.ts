import { useSyncExternalStore } from "react";

// One timer serves every clock on the page.
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let now = Date.now();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  // While nobody looked, time stood still.
  if (timer === undefined) now = Date.now();
  timer ??= setInterval(() => {
    now = Date.now();
    for (const each of listeners) each();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The present in milliseconds, renewed every second. */
export function useNow(): number {
  return useToldNow((present) => present);
}

/** What is told about the present, renewed when it changes: "3 h ago" is drawn once an hour. */
export function useToldNow<T extends string | number>(tell: (now: number) => T): T {
  return useSyncExternalStore(subscribe, () => tell(now));
}
