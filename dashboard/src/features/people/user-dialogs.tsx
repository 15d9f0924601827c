import { Checkbox, NativeSelect, PasswordInput } from "@mantine/core";
import { useState } from "react";
import { useMe } from "@/shared/api/login";
import { NameInput } from "@/shared/dialogs/name-input";
import { ProjectSelect } from "@/shared/dialogs/project-select";
import { RequestDialog } from "@/shared/dialogs/request-dialog";
import { notifyDone } from "@/shared/ui/notify";
import { useUserCommands } from "./api";

interface Props {
  onClose: () => void;
}

/** Adds a person or a service account. */
export function NewUserDialog({ onClose }: Props) {
  const { create } = useUserCommands();
  const [text, setText] = useState("");
  const [kind, setKind] = useState<"person" | "service">("person");
  const [password, setPassword] = useState("");
  const [admin, setAdmin] = useState(false);
  const [project, setProject] = useState("");
  const name = text.trim();
  const rest =
    kind === "person"
      ? { admin, password: password || null }
      : { ...(project === "" ? {} : { project }) };
  return (
    <RequestDialog
      title="New user"
      action="Add user"
      request={create}
      body={name === "" ? null : { body: { name, kind, ...rest } }}
      failure="Could not add the user"
      onClose={onClose}
    >
      <NameInput value={text} onChange={setText} />
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
          <NewPassword
            label="Password"
            description="Empty: a login by another way, as by a link or an OpenID provider"
            value={password}
            onChange={setPassword}
          />
          <Checkbox
            label="Admin: may do everything in every project"
            checked={admin}
            onChange={({ currentTarget }) => setAdmin(currentTarget.checked)}
          />
        </>
      ) : (
        <ProjectSelect
          none="None: managed by admins"
          description="Its maintainers manage the account"
          value={project}
          onChange={setProject}
        />
      )}
    </RequestDialog>
  );
}

/** Sets the password of a user; one's own takes the old one. */
export function PasswordDialog({ user, onClose }: Props & { user: string }) {
  const isOwn = useMe().data?.user === user;
  const { change } = useUserCommands();
  const [old, setOld] = useState("");
  const [password, setPassword] = useState("");
  const oldOne = isOwn && old !== "" ? { old_password: old } : {};
  return (
    <RequestDialog
      title={isOwn ? "Change your password" : `Set the password of ${user}`}
      action="Save password"
      request={change}
      body={password === "" ? null : { path: { name: user }, body: { password, ...oldOne } }}
      failure="Could not set the password"
      onDone={() => {
        notifyDone("Password saved; other sessions have ended");
        onClose();
      }}
      onClose={onClose}
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
      <NewPassword
        label="New password"
        value={password}
        onChange={setPassword}
        data-autofocus={!isOwn}
      />
    </RequestDialog>
  );
}

interface NewPasswordProps {
  label: string;
  description?: string;
  value: string;
  onChange: (password: string) => void;
  "data-autofocus"?: boolean;
}

function NewPassword({ onChange, ...input }: NewPasswordProps) {
  return (
    <PasswordInput
      autoComplete="new-password"
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
      {...input}
    />
  );
}
