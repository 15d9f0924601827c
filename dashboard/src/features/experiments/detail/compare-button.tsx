import { ButtonLink } from "@/shared/ui/links";

/** Opens the curves of jobs beside each other. */
export function CompareButton({ jobs }: { jobs: readonly string[] }) {
  return (
    <ButtonLink size="compact-xs" variant="default" to="/compare" search={{ jobs: jobs.join() }}>
      Compare curves
    </ButtonLink>
  );
}
