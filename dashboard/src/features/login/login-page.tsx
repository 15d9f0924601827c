import { Button, Code, Divider, PasswordInput, Stack, Text, TextInput } from "@mantine/core";
import { useLocation, useRouter } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { useLogIn, useLoginMethods, usePasswordLogin } from "@/shared/api/login";
import { Problem } from "@/shared/ui/problem";
import { LoginFrame } from "./frame";
import { codeOf, pathToOpen, rememberPath, takePath } from "./link";

/** Logs in by the code of a link in the address, a password, the OpenID provider, or a pasted link. */
export function LoginPage() {
  const router = useRouter();
  const location = useLocation();
  const finish = () => router.history.replace(takePath());
  const logIn = useLogIn(finish);
  const methods = useLoginMethods().data;
  const code = codeOf(`#${location.hash}`);
  const isOwnPage = location.pathname === "/login";
  const used = useRef("");
  const { mutate } = logIn;
  useEffect(() => {
    if (!isOwnPage) {
      rememberPath(location.href);
      return;
    }
    if (code === "" || used.current === code) return;
    used.current = code;
    // The code leaves the browser's history before it is used.
    router.history.replace("/login");
    mutate({ body: { code } });
  }, [location, isOwnPage, code, router, mutate]);
  const next = encodeURIComponent(isOwnPage ? pathToOpen() : location.href);
  const hasMore = methods !== undefined && (methods.oidc !== null || methods.password);
  return (
    <LoginFrame title="Log in to Trainhall">
      {methods?.oidc ? (
        <Button component="a" href={`/api/v1/auth/oidc/login?next=${next}`}>
          Log in with {methods.oidc}
        </Button>
      ) : null}
      {methods?.password ? <PasswordForm onDone={finish} /> : null}
      {hasMore ? <Divider label="or by a link" /> : null}
      <LinkForm
        error={logIn.error}
        isPending={logIn.isPending}
        isOnly={!hasMore}
        onCode={(pasted) => mutate({ body: { code: pasted } })}
      />
    </LoginFrame>
  );
}

function PasswordForm({ onDone }: { onDone: () => void }) {
  const logIn = usePasswordLogin(onDone);
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    logIn.mutate({ body: { name, password } });
  };
  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        <TextInput
          label="Name"
          value={name}
          autoComplete="username"
          spellCheck={false}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <PasswordInput
          label="Password"
          value={password}
          autoComplete="current-password"
          onChange={(event) => setPassword(event.currentTarget.value)}
        />
        {logIn.error ? <Problem error={logIn.error} what="Could not log in" /> : null}
        <Button type="submit" disabled={name === "" || password === ""} loading={logIn.isPending}>
          Log in
        </Button>
      </Stack>
    </form>
  );
}

interface LinkProps {
  error: unknown;
  isPending: boolean;
  /** No other way is offered. */
  isOnly: boolean;
  onCode: (code: string) => void;
}

function LinkForm({ error, isPending, isOnly, onCode }: LinkProps) {
  const [text, setText] = useState("");
  const pasted = codeOf(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (pasted !== "") onCode(pasted);
  };
  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        <Text c="dimmed" size="sm" ta={isOnly ? "center" : "left"}>
          Run this on the coordinator’s host, and open the link that it prints. The link works once.
        </Text>
        <Code block>trainhall open</Code>
        <TextInput
          label="Or paste the link here"
          value={text}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => setText(event.currentTarget.value)}
        />
        {error ? <Problem error={error} what="Could not log in" /> : null}
        <Button
          type="submit"
          variant={isOnly ? "filled" : "default"}
          disabled={pasted === ""}
          loading={isPending}
        >
          {isOnly ? "Log in" : "Log in by link"}
        </Button>
      </Stack>
    </form>
  );
}
