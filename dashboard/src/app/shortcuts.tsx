import { Kbd, Modal } from "@mantine/core";
import { useEffect, useRef } from "react";
import { type Column, Table } from "@/shared/table/table";

interface Shortcut {
  keys: string;
  does: string;
}

const SHORTCUTS: Shortcut[] = [
  { keys: "Ctrl K", does: "go to a job, a page or a command (⌘ K on a Mac)" },
  { keys: "?", does: "show these shortcuts" },
  { keys: "j", does: "next job of the list" },
  { keys: "k", does: "previous job of the list" },
  { keys: "Enter", does: "open the job" },
  { keys: "Esc", does: "close a dialog, empty a search field" },
];

const COLUMNS: Column<Shortcut>[] = [
  {
    id: "keys",
    header: "Keys",
    rowHeader: true,
    cell: ({ keys }) => keys.split(" ").map((key) => <Kbd key={key}>{key}</Kbd>),
  },
  { id: "does", header: "Action", cell: ({ does }) => does },
];

export function ShortcutsHelp({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  return (
    <Modal opened={opened} onClose={onClose} title="Keyboard shortcuts">
      <Table
        label="Keyboard shortcuts"
        columns={COLUMNS}
        rows={SHORTCUTS}
        rowKey={({ keys }) => keys}
        bare
      />
    </Modal>
  );
}

/** The shortcuts of every page. Those of a single key do nothing while one types or in a dialog. */
export function useShortcuts(openPalette: () => void, openHelp: () => void): void {
  const latest = useRef({ openPalette, openHelp });
  latest.current = { openPalette, openHelp };
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const { openPalette, openHelp } = latest.current;
      const isMod = event.ctrlKey || event.metaKey;
      if (isMod && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
      }
      if (isMod || event.altKey || isElsewhere(event.target)) return;
      if (event.key === "?") openHelp();
      if (event.key === "j") focusJob(1);
      if (event.key === "k") focusJob(-1);
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}

/** Whether a key is for a text field, or for what is open above the page. */
function isElsewhere(target: EventTarget | null): boolean {
  const places =
    "input:not([type=checkbox]), textarea, select, [contenteditable=true], [role=dialog]";
  return target instanceof Element && target.closest(`${places}, [role=menu]`) !== null;
}

/** Focuses the link of the next or the previous job, which Enter opens. */
function focusJob(distance: 1 | -1): void {
  const links = [...document.querySelectorAll<HTMLElement>("tr[data-job] [data-cell=name] a")];
  const row = document.activeElement?.closest("tr[data-job]");
  const at = links.findIndex((link) => row?.contains(link));
  const next = links[at < 0 ? 0 : at + distance];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "center" });
}
