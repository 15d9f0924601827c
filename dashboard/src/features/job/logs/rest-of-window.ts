import { type RefObject, useLayoutEffect } from "react";

/**
 * Sets an element's height to the rest of the window.
 * `below`: pixels to leave under it; `least`: its minimum height in pixels.
 */
export function useRestOfWindow(
  element: RefObject<HTMLElement | null>,
  { below, least }: { below: number; least: number },
): void {
  useLayoutEffect(() => {
    const fill = (): void => {
      if (element.current === null) return;
      const top = element.current.getBoundingClientRect().top + window.scrollY;
      element.current.style.height = `${Math.max(least, Math.floor(window.innerHeight - top - below))}px`;
    };
    fill();
    // Content above it grows and shrinks, and the page with it.
    const page = new ResizeObserver(fill);
    page.observe(document.body);
    window.addEventListener("resize", fill);
    return () => {
      page.disconnect();
      window.removeEventListener("resize", fill);
    };
  }, [element, below, least]);
}
