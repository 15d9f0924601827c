import { useQuery } from "@tanstack/react-query";
import { readHealth as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";

/** Whether hosts and jobs are made up; that does not change while a coordinator runs. */
export function useIsSimulated(): boolean {
  const health = useQuery({
    queryKey: keys.health,
    queryFn: ({ signal }) => unwrap(request({ signal })),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
  });
  return health.data?.simulated ?? false;
}
