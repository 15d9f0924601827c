import { queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { captureGradients, readGradients, readGradientsOfStep } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import { type GradientHistory, type GradientStep, isActive, type Job } from "@/shared/api/types";
import { notifyProblem } from "@/shared/ui/notify";

const SHOWN_STEPS = 120;
const RENEW_MS = 4000;
const WAITING_MS = 1000;

/** Whether a step that was asked for has not been told yet. */
export function isWaiting(history: GradientHistory | undefined): boolean {
  return history !== undefined && history.asked > history.answered;
}

export function gradientsOptions({ id, state }: Pick<Job, "id" | "state">) {
  return queryOptions({
    queryKey: keys.gradients(id),
    queryFn: ({ signal }) =>
      unwrap(readGradients({ path: { job_id: id }, query: { max_steps: SHOWN_STEPS }, signal })),
    refetchInterval: ({ state: { data } }) => {
      if (!isActive(state)) return false;
      return isWaiting(data) ? WAITING_MS : RENEW_MS;
    },
  });
}

export function useGradients(job: Pick<Job, "id" | "state">) {
  return useQuery(gradientsOptions(job));
}

/** The gradients of one step, with histograms where they are kept. */
export function useGradientsOfStep(jobId: string, captured: GradientStep | undefined) {
  const { step = 0, attempt = 0 } = captured ?? {};
  return useQuery({
    // A later attempt may take the same step again.
    queryKey: keys.gradientStep(jobId, step, attempt),
    queryFn: ({ signal }) => unwrap(readGradientsOfStep({ path: { job_id: jobId, step }, signal })),
    enabled: captured !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: (before) => before,
  });
}

export function useCaptureGradients(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(captureGradients({ path: { job_id: jobId } })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.gradients(jobId), exact: true }),
    onError: (error) => notifyProblem("The gradients could not be captured", error),
  });
}
