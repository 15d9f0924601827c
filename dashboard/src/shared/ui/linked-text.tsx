import { Fragment } from "react";
import { AnchorLink } from "./links";

/** A job by its name and id, `“name” (id, detail)`, or by its id, or a command between backticks. */
const REFERENCE = /“([^”]*)” \(([0-9a-f]{12})(?:, ([^)]*))?\)|\bjob ([0-9a-f]{12})\b|`([^`]+)`/;
const GROUPS = 5;

/** A message of the coordinator with its jobs as links and its commands as code. */
export function LinkedText({ text }: { text: string }) {
  // The groups make the parts repeat: plain text, then the five groups.
  const parts = text.split(REFERENCE);
  const nodes = [];
  for (let i = 0; i < parts.length; i += GROUPS + 1) {
    const [plain, name, namedId, detail, id, command] = parts.slice(i, i + GROUPS + 1);
    nodes.push(
      <Fragment key={i}>
        {plain}
        {namedId ? (
          <>
            “<JobLink id={namedId}>{name}</JobLink>”{detail ? ` (${detail})` : ""}
          </>
        ) : null}
        {id ? (
          <>
            job <JobLink id={id}>{id}</JobLink>
          </>
        ) : null}
        {command ? <code>{command}</code> : null}
      </Fragment>,
    );
  }
  return nodes;
}

function JobLink({ id, children }: { id: string; children: React.ReactNode }) {
  return (
    <AnchorLink to="/jobs/$jobId" params={{ jobId: id }} inherit underline="always" title={id}>
      {children}
    </AnchorLink>
  );
}
