import { useEffect } from "react";

/** Name the browser's tab; the most telling part comes first. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Trainhall" : `${title} · Trainhall`;
  }, [title]);
}
