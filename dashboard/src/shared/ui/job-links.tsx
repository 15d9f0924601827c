import { Fragment } from "react";
import { AnchorLink } from "./links";

/** Where a text of the coordinator names a job by its id. */
const NAMED = /\bjob ([0-9a-f]{12})\b/;

/** A text in which the jobs that it names are links. */
export function JobLinks({ text }: { text: string }) {
  // Split at a group: a text, an id, a text, an id…
  return text.split(NAMED).map((part, i) =>
    i % 2 === 0 ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a text keep their places
      <Fragment key={i}>{part}</Fragment>
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a text keep their places
      <Fragment key={i}>
        job{" "}
        <AnchorLink to="/jobs/$jobId" params={{ jobId: part }} inherit>
          {part}
        </AnchorLink>
      </Fragment>
    ),
  );
}
