import { useQuery } from "@tanstack/react-query";
import type { ComponentType } from "react";
import { readHealth } from "@/client";
import { PATIENCE_MS } from "../api/cluster";
import { Pending } from "../ui/problem";
import { mayReload } from "./reload";

const RETRY_MS = 3000;
let created = 0;

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

/**
 * A component in a file of its own. While the file cannot be loaded, the page stays, says so and
 * retries: `React.lazy` and the router's `lazyRouteComponent` would throw, or reload the page.
 */
export function lazyComponent<P extends object>(load: Load<P>, what = "the page") {
  created += 1;
  const queryKey = ["component", created];
  let loaded: ComponentType<P> | undefined;
  const loadOnce = async (): Promise<true> => {
    loaded ??= await loadOrReload(load);
    return true;
  };
  function Lazy(props: P) {
    const query = useQuery({
      queryKey,
      queryFn: loadOnce,
      initialData: loaded && (true as const),
      staleTime: Number.POSITIVE_INFINITY,
      // Otherwise nothing is tried while the browser itself is offline, and nothing is said.
      networkMode: "always",
      retry: false,
      refetchInterval: ({ state }) => (state.data ? false : RETRY_MS),
    });
    const Loaded = loaded;
    return Loaded ? <Loaded {...props} /> : <Pending query={query} what={what} height={420} />;
  }
  // The router waits for it before it shows a page; the page itself shows a failure.
  Lazy.preload = async () => {
    await load().then(
      (file) => {
        loaded = file.default;
      },
      () => undefined,
    );
  };
  return Lazy;
}

async function loadOrReload<P>(load: Load<P>): Promise<ComponentType<P>> {
  try {
    return (await load()).default;
  } catch {
    // Throws while the coordinator is unreachable: a reload would lose what the page shows.
    await readHealth({ signal: AbortSignal.timeout(PATIENCE_MS) });
  }
  try {
    return (await load()).default;
  } catch {
    // After an update the file no longer exists; some browsers also remember a failed import.
    if (mayReload()) window.location.reload();
    throw new Error("The coordinator has no such file any more. Reload the page.");
  }
}
