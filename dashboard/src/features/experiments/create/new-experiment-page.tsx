import { getRouteApi } from "@tanstack/react-router";
import { useJob } from "@/shared/api/jobs";
import { useRights } from "@/shared/api/rights";
import { type Examples, useExamples } from "@/shared/spec/examples";
import { type Copied, SpecForm } from "@/shared/spec/spec-form";
import { ownerText, pathText, specText } from "@/shared/spec/spec-text";
import { useTitle } from "@/shared/title";
import { Pending } from "@/shared/ui/problem";
import { useCheckExperiment, useCreateExperiment, useExperiment } from "../api/experiments";
import { planText, specOf } from "../spec";
import { EXAMPLES } from "./examples";
import { ExperimentForm } from "./experiment-form";
import { experimentOn, type KindOnJob } from "./from-job";

const route = getRouteApi("/experiments/new");

export default function NewExperimentPage() {
  useTitle("New experiment");
  const { from, job, kind = "sweep" } = route.useSearch();
  const examples = useExamples(EXAMPLES);
  if (job !== undefined) {
    return <FromJob key={`${job} ${kind}`} id={job} kind={kind} examples={examples} />;
  }
  if (from === undefined) {
    return <ExperimentSpecForm key={examples[0].text} examples={examples} />;
  }
  return <FromExperiment key={from} id={from} examples={examples} />;
}

interface Props {
  examples: Examples;
}

/** An experiment on a job that was submitted before. */
function FromJob({ id, kind, examples }: Props & { id: string; kind: KindOnJob }) {
  const query = useJob(id);
  if (!query.data) return <Pending query={query} what="the job" height={420} />;
  const { name, spec } = query.data;
  const code = typeof spec?.code === "string" ? " It uses the code uploaded with it." : "";
  const values = kind === "sweep" ? " Give the values to try, with commas between them." : "";
  const origin = `A ${kind} of ${name} (${id}).${code}${values}`;
  const text = experimentOn(query.data, kind);
  return <ExperimentSpecForm copied={{ text, origin }} examples={examples} />;
}

/** The spec of an experiment that is to be created again. */
function FromExperiment({ id, examples }: Props & { id: string }) {
  const query = useExperiment(id);
  if (!query.data) return <Pending query={query} what="the experiment to copy" height={420} />;
  const { name } = query.data;
  const spec = specOf(query.data);
  // Whoever creates it owns it and its jobs.
  const text = specText({ ...spec, job: { ...spec.job, user: null } });
  const origin = `Copied from ${name} (${id}).`;
  return <ExperimentSpecForm copied={{ text, origin }} examples={examples} />;
}

function ExperimentSpecForm({ copied, examples }: Props & { copied?: Copied }) {
  const navigate = route.useNavigate();
  return (
    <SpecForm
      draft="experiment"
      title="New experiment"
      hint="Describe a job, the values to try, and the metric that rates them."
      label="Experiment in YAML"
      examples={examples}
      copied={copied}
      fields={(text, onChange, problems) => (
        <ExperimentForm text={text} onChange={onChange} problems={problems} examples={examples} />
      )}
      check={{
        request: useCheckExperiment(),
        describe: (plan) => {
          const job = specOf(plan).job ?? {};
          return planText(plan) + pathText(job) + ownerText(job.user);
        },
      }}
      create={useCreateExperiment()}
      onCreated={({ id }) =>
        void navigate({ to: "/experiments/$experimentId", params: { experimentId: id } })
      }
      action="Create"
      effect="creates it"
      refused={useRights().submit}
      failure="Could not create the experiment"
    />
  );
}
