import { MAX_COMPARED } from "@/shared/api/types";

/**
 * The compared jobs of a URL, `a,b,c`. A job's slot decides its colour; removing a job leaves its slot
 * empty (`a,,c`), so that the others keep theirs.
 */
export type Slots = (string | null)[];

export function parseSlots(text: string | undefined): Slots {
  const found = new Set<string>();
  const slots = (text ?? "").split(",").map((part) => {
    const id = part.trim();
    if (id === "" || found.has(id)) return null;
    found.add(id);
    return id;
  });
  return trimmed(slots.slice(0, MAX_COMPARED));
}

export function formatSlots(slots: Slots): string {
  return trimmed(slots)
    .map((id) => id ?? "")
    .join(",");
}

/** Adds a job in the first empty slot; unchanged when there is none. */
export function added(slots: Slots, id: string): Slots {
  if (slots.includes(id)) return slots;
  const free = slots.indexOf(null);
  if (free >= 0) return slots.with(free, id);
  return slots.length < MAX_COMPARED ? [...slots, id] : slots;
}

export function removed(slots: Slots, id: string): Slots {
  return trimmed(slots.map((each) => (each === id ? null : each)));
}

function trimmed(slots: Slots): Slots {
  return slots.slice(0, slots.findLastIndex((id) => id !== null) + 1);
}
