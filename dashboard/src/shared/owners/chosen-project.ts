import { useRights } from "../api/rights";
import { useRememberedScope } from "./scope";

/** The project to which the lists are reduced, if the user may submit to it. */
export function useChosenProject(): string | undefined {
  const { project } = useRememberedScope();
  const { inProject } = useRights();
  return project !== undefined && inProject(project, "member") === null ? project : undefined;
}
