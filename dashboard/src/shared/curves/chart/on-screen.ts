import { type RefObject, useEffect, useRef, useState } from "react";

/** Whether an element is on or near the screen. */
export function useOnScreen<T extends Element>(): [RefObject<T | null>, boolean] {
  const element = useRef<T>(null);
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    if (element.current === null) return;
    const observer = new IntersectionObserver(
      (entries) => setVisible(entries.at(-1)?.isIntersecting ?? false),
      { rootMargin: "300px" },
    );
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, visible];
}

const LINGER_MS = 20_000;

/** True while `on` and for some seconds after, so that scrolling back finds the element in place. */
export function useLingering(on: boolean): boolean {
  const [lingers, setLingers] = useState(on);
  useEffect(() => {
    if (on) {
      setLingers(true);
      return;
    }
    const timer = setTimeout(() => setLingers(false), LINGER_MS);
    return () => clearTimeout(timer);
  }, [on]);
  return on || lingers;
}

/** Work per animation frame in milliseconds, well below the 16 ms of a frame. */
const BUDGET_MS = 6;
const waiting = new Set<() => void>();

/** Queues work for the next frames within their budget. Returns a function that cancels it. */
export function scheduleWork(work: () => void): () => void {
  if (waiting.size === 0) requestAnimationFrame(runSome);
  waiting.add(work);
  return () => waiting.delete(work);
}

function runSome(): void {
  const end = performance.now() + BUDGET_MS;
  for (const work of waiting) {
    waiting.delete(work);
    work();
    if (performance.now() > end) break;
  }
  if (waiting.size > 0) requestAnimationFrame(runSome);
}
