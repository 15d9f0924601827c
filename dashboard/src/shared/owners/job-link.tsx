import { Text } from "@mantine/core";
import { FOREIGN_JOB } from "../api/types";
import { AnchorLink } from "../ui/links";

interface Props {
  /** Null: the user may not see it. */
  id: string | null;
  name: string | null;
  className?: string | undefined;
}

/** A job's name, which leads to its page; one of another project has neither. */
export function JobLink({ id, name, className = "" }: Props) {
  if (id === null) {
    return (
      <Text span inherit c="dimmed" className={className}>
        {FOREIGN_JOB}
      </Text>
    );
  }
  return (
    <AnchorLink to="/jobs/$jobId" params={{ jobId: id }} inherit className={className}>
      {name ?? id}
    </AnchorLink>
  );
}
