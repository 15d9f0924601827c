import { Fragment } from "react";
import { AnchorLink } from "./links";

/** Where the coordinator names a job by its id, or a command between backticks. */
const NAMED = /\bjob ([0-9a-f]{12})\b|`([^`]+)`/;

/** A text of the coordinator: the jobs that it names are links, commands are code. */
export function Told({ text }: { text: string }) {
  // Split at two groups: a text, an id or a command, a text, an id or a command …
  const parts = text.split(NAMED);
  const told = [];
  for (let i = 0; i < parts.length; i += 3) {
    const [plain, job, command] = parts.slice(i, i + 3);
    told.push(
      <Fragment key={i}>
        {plain}
        {job === undefined ? null : (
          <>
            job{" "}
            <AnchorLink to="/jobs/$jobId" params={{ jobId: job }} inherit>
              {job}
            </AnchorLink>
          </>
        )}
        {command === undefined ? null : <code>{command}</code>}
      </Fragment>,
    );
  }
  return told;
}
