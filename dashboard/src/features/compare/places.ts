/**
 * The compared jobs of an address, `a,b,c`. A job's place gives it its look; one that was taken out
 * leaves its place empty (`a,,c`), so that the others keep theirs.
 */
export type Places = (string | null)[];

export const MOST_JOBS = 16;

export function placesOf(text: string | undefined): Places {
  const found = new Set<string>();
  const places = (text ?? "").split(",").map((part) => {
    const id = part.trim();
    if (id === "" || found.has(id)) return null;
    found.add(id);
    return id;
  });
  return trimmed(places.slice(0, MOST_JOBS));
}

export function textOf(places: Places): string {
  return trimmed(places)
    .map((id) => id ?? "")
    .join(",");
}

/** In the first empty place; as it was when there is none. */
export function added(places: Places, id: string): Places {
  if (places.includes(id)) return places;
  const free = places.indexOf(null);
  if (free >= 0) return places.with(free, id);
  return places.length < MOST_JOBS ? [...places, id] : places;
}

export function removed(places: Places, id: string): Places {
  return trimmed(places.map((each) => (each === id ? null : each)));
}

function trimmed(places: Places): Places {
  return places.slice(0, places.findLastIndex((id) => id !== null) + 1);
}
