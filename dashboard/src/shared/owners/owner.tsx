import { NOTHING } from "../format";
import type { Owned } from "./scope";

/** Owner and project, one below the other. */
export function Owner({ of: { user, project } }: { of: Owned }) {
  return (
    <>
      <p className="small one-line" title={user ?? undefined}>
        {user ?? NOTHING}
      </p>
      <p className="small dimmed one-line" title={project}>
        {project}
      </p>
    </>
  );
}
