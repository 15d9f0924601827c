import { Stack } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { SpecView } from "@/shared/spec/spec-view";
import { ButtonLink } from "@/shared/ui/links";
import { DataSets } from "./data-sets";
import { Environment } from "./environment";
import { Logged } from "./logged";
import { Packages } from "./packages";
import { ProvenanceFacts } from "./provenance";

export default function SpecTab({ job }: { job: Job }) {
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
