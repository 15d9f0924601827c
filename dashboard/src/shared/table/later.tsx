import { type ReactNode, useDeferredValue } from "react";

/** Draws its content after the rest of the row, in pieces that a frame has time for. */
export function Later({ children }: { children: ReactNode }) {
  return useDeferredValue(true, false) ? children : null;
}
