import { getRouteApi } from "@tanstack/react-router";
import { useJob } from "@/shared/api/jobs";
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
  if (job !== undefined) return <FromJob key={`${job} ${kind}`} id={job} kind={kind} />;
  if (from === undefined) return <ExperimentSpecForm key="new" />;
  return <FromExperiment key={from} id={from} />;
}

/** An experiment on a job that was submitted before. */
function FromJob({ id, kind }: { id: string; kind: KindOnJob }) {
  const query = useJob(id);
  if (!query.data) return <Pending query={query} what="the job" height={420} />;
  const { name, spec } = query.data;
  const code = typeof spec.code === "string" ? " It uses the code uploaded with it." : "";
  const values = kind === "sweep" ? " Give the values to try, with commas between them." : "";
  const origin = `A ${kind} of ${name} (${id}).${code}${values}`;
  return <ExperimentSpecForm copied={{ text: experimentOn(query.data, kind), origin }} />;
}

/** The spec of an experiment that is to be created again. */
function FromExperiment({ id }: { id: string }) {
  const query = useExperiment(id);
  if (!query.data) return <Pending query={query} what="the experiment to copy" height={420} />;
  const { name, spec } = query.data;
  return (
    <ExperimentSpecForm copied={{ text: specText(spec), origin: `Copied from ${name} (${id}).` }} />
  );
}

function ExperimentSpecForm({ copied }: { copied?: Copied }) {
  const navigate = route.useNavigate();
  return (
    <SpecForm
      draft="experiment"
      title="New experiment"
      hint="Describe a job, the values to try, and the metric that rates them."
      label="Experiment in YAML"
      examples={EXAMPLES}
      copied={copied}
      fields={(text, onChange, problems) => (
        <ExperimentForm text={text} onChange={onChange} problems={problems} />
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
      failure="Could not create the experiment"
    />
  );
}
