import { type RefObject, useEffect, useRef, useState } from "react";

/** Whether an element is on the screen, or nearly so. */
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

/** True with `on`, and for a while after it: who scrolls back and forth finds what was there. */
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

/** What may fill a frame of 60 a second with room to spare, in milliseconds. */
const BUDGET_MS = 6;
const waiting = new Set<() => void>();

/** Do something soon, not too much of it in one frame. Returns how to take it back. */
export function whenThereIsTime(work: () => void): () => void {
  if (waiting.size === 0) requestAnimationFrame(doSome);
  waiting.add(work);
  return () => waiting.delete(work);
}

function doSome(): void {
  const end = performance.now() + BUDGET_MS;
  for (const work of waiting) {
    waiting.delete(work);
    work();
    if (performance.now() > end) break;
  }
  if (waiting.size > 0) requestAnimationFrame(doSome);
}
