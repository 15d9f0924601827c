import { useSyncExternalStore } from "react";

/** A value with subscribers. */
export class Signal<T> {
  private readonly listeners = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  update(change: (value: T) => T): void {
    const next = change(this.current);
    if (Object.is(next, this.current)) return;
    this.current = next;
    for (const listener of this.listeners) listener();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  get = (): T => this.current;
}

export function useSignal<T>(signal: Signal<T>): T {
  return useSyncExternalStore(signal.subscribe, signal.get);
}
