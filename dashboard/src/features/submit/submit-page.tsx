import { getRouteApi } from "@tanstack/react-router";
import { useJob } from "@/shared/api/jobs";
import { useRights } from "@/shared/api/rights";
import type { Outlook } from "@/shared/api/types";
import { type Examples, useExamples } from "@/shared/spec/examples";
import { type Copied, SpecForm } from "@/shared/spec/spec-form";
import { ownerText, pathText, specText } from "@/shared/spec/spec-text";
import { useTitle } from "@/shared/title";
import { Pending } from "@/shared/ui/problem";
import { useCheckSpec, useSubmitJob } from "./api/submit-job";
import { CodeUpload } from "./code/code-upload";
import { copiedFrom } from "./copied-from";
import { EXAMPLES } from "./examples";

const route = getRouteApi("/new");

export default function SubmitPage() {
  useTitle("New job");
  const { from } = route.useSearch();
  const examples = useExamples(EXAMPLES);
  if (from === undefined) return <JobForm key={examples[0].text} examples={examples} />;
  return <FromJob key={from} id={from} examples={examples} />;
}

interface Props {
  examples: Examples;
}

/** The spec of a job that is to be submitted again. */
function FromJob({ id, examples }: Props & { id: string }) {
  const query = useJob(id);
  if (!query.data) return <Pending query={query} what="the job to copy" height={420} />;
  // Whoever submits it owns it.
  const text = specText({ ...query.data.spec, user: null });
  return <JobForm copied={{ text, origin: copiedFrom(query.data) }} examples={examples} />;
}

function JobForm({ copied, examples }: Props & { copied?: Copied }) {
  const navigate = route.useNavigate();
  const refused = useRights().submit;
  return (
    <SpecForm
      draft="job"
      title="New job"
      hint="Describe the job in YAML."
      label="Job spec in YAML"
      examples={examples}
      copied={copied}
      check={{
        request: useCheckSpec(),
        describe: ({ outlook, spec, warnings }) =>
          [
            `Valid. ${outlookText(outlook)}${pathText(spec)}${ownerText(spec.user)}`,
            ...warnings.map((warning) => `${warning}.`),
          ].join(" "),
        warns: ({ outlook, warnings }) => outlook.when === "never" || warnings.length > 0,
      }}
      create={useSubmitJob()}
      onCreated={({ id }) => void navigate({ to: "/jobs/$jobId", params: { jobId: id } })}
      action="Submit"
      effect="submits"
      refused={refused}
      above={(text, onChange) =>
        refused === null ? <CodeUpload text={text} onChange={onChange} /> : null
      }
      failure="Could not submit the job"
    />
  );
}

/** When the checked job would start. */
function outlookText({ when, position, reason }: Outlook): string {
  if (when === "now") return `It would start now, ${reason}.`;
  if (when === "never") return `It could never start on this cluster: ${reason}.`;
  return `It would be number ${position} in the queue: ${reason}.`;
}
