import { Checkbox, NativeSelect, PasswordInput, TextInput } from "@mantine/core";
import { useState } from "react";
import { useMe } from "@/shared/api/login";
import { Dialog } from "@/shared/ui/dialog";
import { notifyDone } from "@/shared/ui/notify";
import { Problem } from "@/shared/ui/problem";
import { useUserCommands } from "./api";

interface Props {
  onClose: () => void;
}

/** Adds a person or a service account. */
export function NewUserDialog({ onClose }: Props) {
  const projects = useMe().data?.projects ?? [];
  const { create } = useUserCommands();
  const [name, setName] = useState("");
  const [kind, setKind] = useState<"person" | "service">("person");
  const [password, setPassword] = useState("");
  const [admin, setAdmin] = useState(false);
  const [project, setProject] = useState("");
  return (
    <Dialog
      title="New user"
      action="Add user"
      busy={create.isPending}
      disabled={name.trim() === ""}
      onClose={onClose}
      onSubmit={() =>
        create.mutate(
          {
            body: {
              name: name.trim(),
              kind,
              ...(kind === "person" ? { admin, password: password || null } : {}),
              ...(kind === "service" && project !== "" ? { project } : {}),
            },
          },
          { onSuccess: onClose },
        )
      }
    >
      <TextInput
        label="Name"
        value={name}
        maxLength={128}
        autoComplete="off"
        onChange={({ currentTarget }) => setName(currentTarget.value)}
        data-autofocus
      />
      <NativeSelect
        label="Kind"
        value={kind}
        data={[
          { value: "person", label: "Person" },
          { value: "service", label: "Service account, for a program" },
        ]}
        onChange={({ currentTarget }) =>
          setKind(currentTarget.value === "service" ? "service" : "person")
        }
      />
      {kind === "person" ? (
        <>
          <PasswordInput
            label="Password"
            description="Empty: a login by another way, as by a link or an OpenID provider"
            value={password}
            autoComplete="new-password"
            onChange={({ currentTarget }) => setPassword(currentTarget.value)}
          />
          <Checkbox
            label="Admin: may do everything in every project"
            checked={admin}
            onChange={({ currentTarget }) => setAdmin(currentTarget.checked)}
          />
        </>
      ) : (
        <NativeSelect
          label="Project"
          description="Its maintainers manage the account"
          value={project}
          onChange={({ currentTarget }) => setProject(currentTarget.value)}
          data={[
            { value: "", label: "None: managed by admins" },
            ...projects.map((each) => ({ value: each.name, label: each.name })),
          ]}
        />
      )}
      {create.error ? <Problem error={create.error} what="Could not add the user" /> : null}
    </Dialog>
  );
}

/** Sets the password of a user; one's own takes the old one. */
export function PasswordDialog({ user, onClose }: Props & { user: string }) {
  const isOwn = useMe().data?.user === user;
  const { change } = useUserCommands();
  const [old, setOld] = useState("");
  const [password, setPassword] = useState("");
  return (
    <Dialog
      title={isOwn ? "Change your password" : `Set the password of ${user}`}
      action="Save password"
      busy={change.isPending}
      disabled={password === ""}
      onClose={onClose}
      onSubmit={() =>
        change.mutate(
          {
            path: { name: user },
            body: { password, ...(isOwn && old !== "" ? { old_password: old } : {}) },
          },
          {
            onSuccess: () => {
              notifyDone("Password saved; other sessions have ended");
              onClose();
            },
          },
        )
      }
    >
      {isOwn ? (
        <PasswordInput
          label="Old password"
          description="Empty if you have none yet"
          value={old}
          autoComplete="current-password"
          onChange={({ currentTarget }) => setOld(currentTarget.value)}
          data-autofocus
        />
      ) : null}
      <PasswordInput
        label="New password"
        value={password}
        autoComplete="new-password"
        onChange={({ currentTarget }) => setPassword(currentTarget.value)}
      />
      {change.error ? <Problem error={change.error} what="Could not set the password" /> : null}
    </Dialog>
  );
}
