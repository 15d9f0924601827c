import { useSyncExternalStore } from "react";

// One timer serves every clock on the page.
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let now = Date.now();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  // The clock stops while nobody listens.
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

/** The current time in milliseconds, updated every second. */
export function useNow(): number {
  return useDerivedNow((present) => present);
}

/** A value derived from the current time; renders when it changes: "3 h ago" once an hour. */
export function useDerivedNow<T extends string | number>(derive: (now: number) => T): T {
  return useSyncExternalStore(subscribe, () => derive(now));
}

const MINUTE_MS = 60_000;

/** The end of the present minute in milliseconds, for what need not change sooner. */
export function useMinute(): number {
  return useDerivedNow((now) => Math.ceil(now / MINUTE_MS) * MINUTE_MS);
}
