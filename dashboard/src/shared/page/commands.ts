import { useEffect, useRef } from "react";

/** A command of the page, as the palette offers it. */
export interface PageCommand {
  label: string;
  run: () => void;
}

const pages = new Set<() => readonly PageCommand[]>();

/** The commands of what is on the screen now. */
export function pageCommands(): PageCommand[] {
  return [...pages].flatMap((read) => read());
}

/** Offers commands in the palette while the component is shown. */
export function usePageCommands(commands: readonly PageCommand[]): void {
  const latest = useRef(commands);
  latest.current = commands;
  useEffect(() => {
    const read = () => latest.current;
    pages.add(read);
    return () => void pages.delete(read);
  }, []);
}
