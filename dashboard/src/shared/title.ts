import { useEffect } from "react";

/** Colours of a job's state on the browser's tab, as on the page. */
const DOTS: Record<string, string> = {
  running: "#228be6",
  paused: "#fab005",
  completed: "#12b886",
  failed: "#fa5252",
};

const PLAIN = "/favicon.svg";

/** Sets the title of the browser's tab. A state is a dot on its icon. */
export function useTitle(title: string, state = ""): void {
  useEffect(() => {
    document.title = title === "" ? "Trainhall" : `${title} · Trainhall`;
  }, [title]);
  useEffect(() => {
    const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
    const color = DOTS[state];
    if (icon === null || color === undefined) return;
    icon.href = dotted(color);
    return () => {
      icon.href = PLAIN;
    };
  }, [state]);
}

function dotted(color: string): string {
  const svg =
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">' +
    '<rect width="32" height="32" rx="7" fill="#2f5fd0"/>' +
    '<path d="M10 8c2 8 4 9 12 9.500" stroke="#fff" stroke-width="3" stroke-linecap="round" fill="none"/>' +
    `<circle cx="23" cy="23" r="8" fill="${color}" stroke="#fff" stroke-width="2"/></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
