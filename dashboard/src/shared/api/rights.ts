import type { Me } from "@/client";
import type { Owned } from "../owners/scope";
import { useMe } from "./login";
import type { Role } from "./types";

/** The least first. */
export const ROLES: readonly Role[] = ["viewer", "member", "maintainer"];

export function rolesUpTo(role: Role): readonly Role[] {
  return ROLES.slice(0, ROLES.indexOf(role) + 1);
}

/**
 * Why the user may not do what the API leaves to roles; null: they may, or it is not known yet. The
 * API refuses what this lets through.
 */
export interface Rights {
  isAdmin: boolean;
  /** For what only admins do. */
  admin: string | null;
  /** For jobs, experiments and reports, which take a project to put them in. */
  submit: string | null;
  /** For a user without a role in any project. */
  noProject: string | null;
  /** For what takes a role in a project. */
  inProject: (project: string, least: Role) => string | null;
  /** For changes of what belongs to somebody in a project. */
  command: (of: Owned) => string | null;
}

export function useRights(): Rights {
  return rightsOf(useMe().data);
}

export function rightsOf(me: Me | undefined): Rights {
  if (me === undefined || me.admin) {
    const allowed = () => null;
    return {
      isAdmin: me?.admin === true,
      admin: null,
      submit: null,
      noProject: null,
      inProject: allowed,
      command: allowed,
    };
  }
  const has = (role: Role, least: Role) => rolesUpTo(role).includes(least);
  const inProject = (project: string, least: Role) => {
    const role = me.projects.find(({ name }) => name === project)?.role;
    if (role !== undefined && has(role, least)) return null;
    const present = role === undefined ? "you have none" : `you have ${role}`;
    return `This takes the role ${least} in project ${project}; ${present}. A maintainer of ${project} or an admin can give it.`;
  };
  return {
    isAdmin: false,
    admin: "This takes an admin. Admins can make you one.",
    noProject:
      me.projects.length > 0
        ? null
        : "You have no role in a project yet. A maintainer of a project or an admin can give you one.",
    submit: me.projects.some(({ role }) => has(role, "member"))
      ? null
      : "This takes the role member in a project. A maintainer of the project or an admin can give it.",
    inProject,
    command: ({ user, project }) => inProject(project, user === me.user ? "member" : "maintainer"),
  };
}
