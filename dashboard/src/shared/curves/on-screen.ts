import { type RefObject, useEffect, useRef, useState } from "react";

/** Whether an element is on the screen, or nearly so. */
export function useOnScreen<T extends Element>(): [RefObject<T | null>, boolean] {
  const element = useRef<T>(null);
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    if (element.current === null) return;
    const observer = new IntersectionObserver(
      (entries) => setVisible(entries.at(-1)?.isIntersecting ?? false),
      { rootMargin: "200px" },
    );
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, visible];
}
