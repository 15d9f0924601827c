import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { captureGradients, readGradientsOfStep } from "@/client";
import { readGradientsOptions, readGradientsQueryKey } from "@/client/@tanstack/react-query.gen";
import { type GradientHistory, type GradientStep, isActive, type Job } from "@/shared/api/types";
import { notifyProblem } from "@/shared/ui/notify";

const SHOWN_STEPS = 120;
const POLL_MS = 4000;
const WAITING_MS = 1000;

/** Whether a step that was requested has not been reported yet. */
export function isWaiting(history: GradientHistory | undefined): boolean {
  return history !== undefined && history.asked > history.answered;
}

function ofJob(id: string) {
  return { path: { job_id: id }, query: { max_steps: SHOWN_STEPS } };
}

export function gradientsKey(id: string) {
  return readGradientsQueryKey(ofJob(id));
}

export function useGradients(job: Pick<Job, "id" | "running_since">) {
  return useQuery({
    ...readGradientsOptions(ofJob(job.id)),
    refetchInterval: ({ state: { data } }) => {
      if (!isActive(job)) return false;
      return isWaiting(data) ? WAITING_MS : POLL_MS;
    },
  });
}

/** The gradients of one step, with histograms where they are kept. */
export function useGradientsOfStep(jobId: string, captured: GradientStep | undefined) {
  const { step = 0, attempt = 0 } = captured ?? {};
  const path = { job_id: jobId, step };
  return useQuery({
    // A later attempt may repeat the same step.
    queryKey: [{ _id: "gradientsOfStep", path, attempt }],
    queryFn: ({ signal }) => readGradientsOfStep({ path, signal }),
    enabled: captured !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: (before) => before,
  });
}

export function useCaptureGradients(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => captureGradients({ path: { job_id: jobId } }),
    onSuccess: () => client.invalidateQueries({ queryKey: gradientsKey(jobId) }),
    onError: (error) => notifyProblem("Could not record the gradients", error),
  });
}
