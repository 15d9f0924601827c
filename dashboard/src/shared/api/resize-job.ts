import { useMutation } from "@tanstack/react-query";
import { type Resize, resizeJob as request } from "@/client";
import { unwrap } from "./client";
import { useJobChanged } from "./job-change";
import type { Job } from "./types";

interface Wish {
  id: string;
  resources: Resize;
}

export function resizeJob({ id, resources }: Wish): Promise<Job> {
  return unwrap(request({ path: { job_id: id }, body: resources }));
}

export function useResizeJob() {
  return useMutation({ mutationFn: resizeJob, onSuccess: useJobChanged() });
}
