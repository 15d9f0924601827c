import { Fragment } from "react";
import { AnchorLink } from "./links";
import { Moment } from "./time";

/**
 * A job by its name and id, `“name” (id, detail)`, or by its id; an experiment, `“name” (experiment
 * id)`; a command between backticks; a time as `14:20 UTC on Nov 24`.
 */
const REFERENCE =
  /“([^”]*)” \((experiment )?([0-9a-f]{12})(?:, ([^)]*))?\)|\bjob ([0-9a-f]{12})\b|`([^`]+)`|\b(\d\d:\d\d(?::\d\d)?) UTC(?: on (\w{3} \d\d))?/;
const GROUPS = 8;

/** A message of the coordinator: its jobs and experiments are links, its commands code, its times local. */
export function LinkedText({ text }: { text: string }) {
  // The groups make the parts repeat: plain text, then the groups.
  const parts = text.split(REFERENCE);
  const nodes = [];
  for (let i = 0; i < parts.length; i += GROUPS + 1) {
    const [plain, name, experiment, namedId, detail, id, command, clock, day] = parts.slice(
      i,
      i + GROUPS + 1,
    );
    const NamedLink = experiment ? ExperimentLink : JobLink;
    nodes.push(
      <Fragment key={i}>
        {plain}
        {namedId ? (
          <>
            “<NamedLink id={namedId}>{name}</NamedLink>”{detail ? ` (${detail})` : ""}
          </>
        ) : null}
        {id ? (
          <>
            job <JobLink id={id}>{id}</JobLink>
          </>
        ) : null}
        {command ? <code>{command}</code> : null}
        {clock ? (
          <Moment
            value={nearest(clock, day)}
            precision={clock.length > "14:20".length ? "seconds" : "minutes"}
          />
        ) : null}
      </Fragment>,
    );
  }
  return nodes;
}

/** A time in UTC in RFC 3339; without a day it is today, and a day has the year that is nearest. */
function nearest(clock: string, day: string | undefined): string {
  const now = new Date();
  const year = now.getUTCFullYear();
  const today = now.toUTCString().slice(5, 16);
  const days = day === undefined ? [today] : [year - 1, year, year + 1].map((y) => `${day} ${y}`);
  const times = days.map((date) => Date.parse(`${date} ${clock} UTC`));
  const distance = (time: number) => Math.abs(time - now.getTime());
  const [best = 0] = times.sort((a, b) => distance(a) - distance(b));
  return new Date(best).toISOString();
}

interface LinkProps {
  id: string;
  children: React.ReactNode;
}

function ExperimentLink({ id, children }: LinkProps) {
  return (
    <AnchorLink
      to="/experiments/$experimentId"
      params={{ experimentId: id }}
      inherit
      underline="always"
      title={id}
    >
      {children}
    </AnchorLink>
  );
}

function JobLink({ id, children }: LinkProps) {
  return (
    <AnchorLink to="/jobs/$jobId" params={{ jobId: id }} inherit underline="always" title={id}>
      {children}
    </AnchorLink>
  );
}
