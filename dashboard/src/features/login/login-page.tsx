import { Button, Code, Stack, Text, TextInput, Title } from "@mantine/core";
import { useLocation, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { useLogIn } from "@/shared/api/login";
import { useTitle } from "@/shared/title";
import { Problem } from "@/shared/ui/problem";
import { codeOf, rememberPath, takePath } from "./link";

/** Logs in with the code of a link; without one, says how to get a link. */
export function LoginPage() {
  useTitle("Log in");
  const router = useRouter();
  const location = useLocation();
  const [text, setText] = useState("");
  const logIn = useLogIn(() => router.history.replace(takePath()));
  const code = codeOf(`#${location.hash}`);
  const used = useRef("");
  const { mutate } = logIn;
  useEffect(() => {
    if (location.pathname !== "/login") {
      rememberPath(location.href);
      return;
    }
    if (code === "" || used.current === code) return;
    used.current = code;
    // The code leaves the browser's history before it is used.
    router.history.replace("/login");
    mutate({ body: { code } });
  }, [location, code, router, mutate]);
  const pasted = codeOf(text);
  return (
    <Stack component="main" id="main" align="center" gap="md" py={56} px="md">
      <img src="/favicon.svg" width={40} height={40} alt="" />
      <Title order={1} size="h3">
        Log in to Trainhall
      </Title>
      <Text c="dimmed" size="sm" ta="center" maw={520}>
        Run this on the coordinator’s host, and open the link that it prints. The link works once.
      </Text>
      <Code block>trainhall open</Code>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (pasted !== "") mutate({ body: { code: pasted } });
        }}
        style={{ width: "min(100%, 420px)" }}
      >
        <Stack gap="sm">
          <TextInput
            label="Or paste the link here"
            value={text}
            autoComplete="off"
            spellCheck={false}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          {logIn.error ? <Problem error={logIn.error} what="Could not log in" /> : null}
          <Button type="submit" disabled={pasted === ""} loading={logIn.isPending}>
            Log in
          </Button>
        </Stack>
      </form>
    </Stack>
  );
}
