import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { listGroupMembers, listGroups, listMembers, listProjects } from "@/client";
import {
  addGroupMemberMutation,
  changeProjectMutation,
  changeUserMutation,
  createGroupMutation,
  createProjectMutation,
  createUserMutation,
  deleteGroupMutation,
  deleteProjectMutation,
  getProjectOptions,
  listGroupMembersQueryKey,
  listGroupsQueryKey,
  listMembersQueryKey,
  listProjectsQueryKey,
  listUsersInfiniteOptions,
  readMeQueryKey,
  removeGroupMemberMutation,
  removeMemberMutation,
  removeUserMutation,
  setMemberMutation,
} from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR, everyPage } from "@/shared/api/pages";
import { notifyProblem } from "@/shared/ui/notify";

const PAGE = 200;

export function useProjects() {
  return useQuery({
    queryKey: listProjectsQueryKey(),
    queryFn: ({ signal }) =>
      everyPage((cursor) => listProjects({ query: { cursor, limit: PAGE }, signal })),
  });
}

export function useProject(name: string) {
  return useQuery(getProjectOptions({ path: { name } }));
}

export function useMembers(name: string) {
  const path = { name };
  return useQuery({
    queryKey: listMembersQueryKey({ path }),
    queryFn: ({ signal }) =>
      everyPage((cursor) => listMembers({ path, query: { cursor, limit: PAGE }, signal })),
  });
}

export function useUsers(removed: boolean) {
  return useInfiniteQuery({
    ...listUsersInfiniteOptions({ query: { limit: PAGE, removed } }),
    ...BY_CURSOR,
  });
}

export function useGroups() {
  return useQuery({
    queryKey: listGroupsQueryKey(),
    queryFn: ({ signal }) =>
      everyPage((cursor) => listGroups({ query: { cursor, limit: PAGE }, signal })),
  });
}

export function useGroupMembers(group: string) {
  const path = { group };
  return useQuery({
    queryKey: listGroupMembersQueryKey({ path }),
    queryFn: ({ signal }) =>
      everyPage((cursor) => listGroupMembers({ path, query: { cursor, limit: PAGE }, signal })),
  });
}

/** Creates, changes and deletes projects, and sets the roles in them. */
export function useProjectCommands() {
  const refresh = useRefresh("listProjects", "getProject", "listMembers");
  const failed = useFailed();
  return {
    create: useMutation({ ...createProjectMutation(), onSuccess: refresh }),
    change: useMutation({ ...changeProjectMutation(), onSuccess: refresh }),
    remove: useMutation({
      ...deleteProjectMutation(),
      onSuccess: refresh,
      ...failed("Could not delete the project"),
    }),
    setMember: useMutation({
      ...setMemberMutation(),
      onSuccess: refresh,
      ...failed("Could not set the role"),
    }),
    removeMember: useMutation({
      ...removeMemberMutation(),
      onSuccess: refresh,
      ...failed("Could not remove the member"),
    }),
  };
}

export function useUserCommands() {
  const refresh = useRefresh("listUsers");
  const failed = useFailed();
  return {
    create: useMutation({ ...createUserMutation(), onSuccess: refresh }),
    change: useMutation({ ...changeUserMutation(), onSuccess: refresh }),
    remove: useMutation({
      ...removeUserMutation(),
      onSuccess: refresh,
      ...failed("Could not remove the user"),
    }),
  };
}

export function useGroupCommands() {
  const refresh = useRefresh("listGroups", "listGroupMembers");
  const failed = useFailed();
  return {
    create: useMutation({ ...createGroupMutation(), onSuccess: refresh }),
    remove: useMutation({
      ...deleteGroupMutation(),
      onSuccess: refresh,
      ...failed("Could not delete the group"),
    }),
    add: useMutation({ ...addGroupMemberMutation(), onSuccess: refresh }),
    removeMember: useMutation({
      ...removeGroupMemberMutation(),
      onSuccess: refresh,
      ...failed("Could not remove the user from the group"),
    }),
  };
}

/** Reads these lists again, and the roles of the user, which may have changed. */
function useRefresh(...operations: string[]) {
  const client = useQueryClient();
  const me = (readMeQueryKey()[0] as { _id: string })._id;
  const names = new Set([...operations, me]);
  return () =>
    client.invalidateQueries({
      predicate: ({ queryKey }) => names.has((queryKey[0] as { _id?: string })._id ?? ""),
    });
}

function useFailed() {
  return (what: string) => ({ onError: (error: unknown) => notifyProblem(what, error) });
}
