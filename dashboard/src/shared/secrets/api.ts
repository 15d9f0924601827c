import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  listOwnSecrets,
  listProjectSecrets,
  removeOwnSecret,
  removeProjectSecret,
  setOwnSecret,
  setProjectSecret,
} from "@/client";
import { everyPage } from "../api/pages";
import { notifyProblem } from "../ui/notify";

const PAGE = 200;

export interface NamedValue {
  name: string;
  value: string;
}

const keyOf = (project: string | null) => ["secrets", project];

/** Secrets of a project, or without one of the user. */
export function useSecrets(project: string | null, enabled: boolean) {
  return useQuery({
    queryKey: keyOf(project),
    queryFn: ({ signal }) =>
      everyPage((cursor) => {
        const query = { cursor, limit: PAGE };
        return project === null
          ? listOwnSecrets({ query, signal })
          : listProjectSecrets({ path: { name: project }, query, signal });
      }),
    enabled,
  });
}

export function useSecretCommands(project: string | null) {
  const client = useQueryClient();
  const onSuccess = () => client.invalidateQueries({ queryKey: keyOf(project) });
  return {
    set: useMutation({
      mutationFn: async ({ name: secret, value }: NamedValue) => {
        const body = { value };
        if (project === null) await setOwnSecret({ path: { secret }, body });
        else await setProjectSecret({ path: { name: project, secret }, body });
      },
      gcTime: 0, // what was sent is not kept
      onSuccess,
    }),
    remove: useMutation({
      mutationFn: async (secret: string) => {
        if (project === null) await removeOwnSecret({ path: { secret } });
        else await removeProjectSecret({ path: { name: project, secret } });
      },
      onSuccess,
      onError: (error) => notifyProblem("Could not remove the secret", error),
    }),
  };
}
