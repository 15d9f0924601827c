import { Stack } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { SpecView } from "@/shared/spec/spec-view";
import { Empty } from "@/shared/ui/empty";
import { ButtonLink } from "@/shared/ui/links";
import { DataSets } from "./data-sets";
import { Environment } from "./environment";
import { Logged } from "./logged";
import { Packages } from "./packages";
import { ProvenanceFacts } from "./provenance";

export default function SpecTab({ job }: { job: Job }) {
  if (job.spec === null) return <LoggedOfRun job={job} />;
  return (
    <Stack gap="md">
      <SpecView of="job" spec={job.spec}>
        <ButtonLink size="xs" variant="default" to="/new" search={{ from: job.id }}>
          Submit again
        </ButtonLink>
      </SpecView>
      <Logged job={job} />
      <ProvenanceFacts jobId={job.id} />
      <Environment job={job} />
      <DataSets job={job} />
      <Packages jobId={job.id} />
    </Stack>
  );
}

/** What there is of a run, which has no spec. */
function LoggedOfRun({ job }: { job: Job }) {
  const isEmpty = [job.parameters, job.mlflow_tags].every((each) => Object.keys(each).length === 0);
  if (isEmpty) return <Empty title="No parameters or tags">The run has logged none.</Empty>;
  return <Logged job={job} />;
}
