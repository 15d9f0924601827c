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

const SAMPLE_MS = 10_000;

/** The begin of the present ten seconds in milliseconds, for what is sampled as often. */
export function useSampleTime(): number {
  return useDerivedNow((now) => Math.floor(now / SAMPLE_MS) * SAMPLE_MS);
}
