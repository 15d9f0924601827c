import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { analyzeExperiment, createExperiment, listTrials } from "@/client";
import {
  cancelExperimentMutation,
  getExperimentOptions,
  getExperimentQueryKey,
  listExperimentsInfiniteOptions,
  pauseExperimentMutation,
  resumeExperimentMutation,
} from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR, everyPage } from "@/shared/api/pages";
import { withCode } from "@/shared/api/problem";
import type { Analysis, Experiment, ExperimentPlan, Trial } from "@/shared/api/types";
import { type Submission, yamlRequest } from "@/shared/api/yaml";
import { ownerParameters, type Scope } from "@/shared/owners/scope";
import { notifyProblem } from "@/shared/ui/notify";

const PAGE = 50;
const TRIALS_PAGE = 500;
const POLL_MS = 3000;
const SPEEDS_POLL_MS = 10_000;
const SETTLED_MS = 20_000;

/** The experiments of a scope, the newest first, page by page. */
export function useExperiments(scope: Scope) {
  return useInfiniteQuery({
    ...listExperimentsInfiniteOptions({ query: { limit: PAGE, ...ownerParameters(scope) } }),
    ...BY_CURSOR,
    refetchInterval: POLL_MS,
  });
}

/** An experiment, read again now and then, or by `useTrials` if that shows its runs. */
export function useExperiment(id: string, { withTrials = false } = {}) {
  return useQuery({
    ...getExperimentOptions({ path: { experiment_id: id } }),
    refetchInterval: ({ state: { data } }) =>
      data?.finished_at === null && !withTrials ? POLL_MS : false,
  });
}

/** All runs of an experiment, which are at most 1,000; then the experiment, whose counts are theirs. */
export function useTrials({ id, finished_at }: Experiment) {
  const client = useQueryClient();
  const ended = finished_at !== null;
  return useQuery({
    // Read once more when the experiment has ended.
    queryKey: [{ _id: "everyTrial", path: { experiment_id: id }, ended }],
    queryFn: async ({ signal }): Promise<Trial[]> => {
      const trials = await everyPage((cursor) =>
        listTrials({ path: { experiment_id: id }, query: { cursor, limit: TRIALS_PAGE }, signal }),
      );
      void client.invalidateQueries({
        queryKey: getExperimentQueryKey({ path: { experiment_id: id } }),
      });
      return trials;
    },
    placeholderData: (before) => before,
    refetchInterval: ended ? false : POLL_MS,
  });
}

/** The analysis as it was when it was asked for: it takes the coordinator seconds. Where speeds
 * are compared, which takes little, it is kept up to date. */
export function useAnalysis({ id, kind, finished_at }: Experiment) {
  return useQuery({
    // Asked for once more when the experiment has ended.
    queryKey: [{ _id: "analysis", path: { experiment_id: id }, ended: finished_at !== null }],
    queryFn: ({ signal }): Promise<Analysis> =>
      analyzeExperiment({ path: { experiment_id: id }, signal }),
    placeholderData: (before) => before,
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: ({ state: { data } }) =>
      kind !== "sweep" && !isSettled(data, finished_at) ? SPEEDS_POLL_MS : false,
  });
}

/** Whether the figures of the last run are known: they are stored a moment after its end. */
function isSettled(analysis: Analysis | undefined, finishedAt: string | null): boolean {
  if (analysis === undefined || finishedAt === null) return false;
  return Date.parse(analysis.generated_at) > Date.parse(finishedAt) + SETTLED_MS;
}

export function useExperimentCommands({ id }: Experiment) {
  const client = useQueryClient();
  const key = getExperimentQueryKey({ path: { experiment_id: id } });
  const change = (failure: string) => ({
    onSuccess: (experiment: Experiment) => client.setQueryData(key, experiment),
    onError: (error: unknown) => notifyProblem(failure, error),
  });
  return {
    pause: useMutation({
      ...pauseExperimentMutation(),
      ...change("Could not pause the experiment"),
    }),
    resume: useMutation({
      ...resumeExperimentMutation(),
      ...change("Could not resume the experiment"),
    }),
    cancel: useMutation({
      ...cancelExperimentMutation(),
      ...change("Could not cancel the experiment"),
    }),
  };
}

export function useCheckExperiment() {
  return useMutation({
    mutationFn: async (text: string) => {
      const plan = await createExperiment({ ...yamlRequest({ text }), query: { dry_run: true } });
      return withCode(plan as ExperimentPlan, "job.code");
    },
  });
}

export function useCreateExperiment() {
  return useMutation({
    mutationFn: (submission: Submission) =>
      createExperiment(yamlRequest(submission)) as Promise<Experiment>,
  });
}
