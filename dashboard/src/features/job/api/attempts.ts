import { useQuery } from "@tanstack/react-query";
import { listAttemptsOptions } from "@/client/@tanstack/react-query.gen";

export function useAttempts(jobId: string) {
  return useQuery({
    ...listAttemptsOptions({ path: { job_id: jobId } }),
    select: (page) => page.items,
  });
}
