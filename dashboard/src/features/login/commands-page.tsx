import { Code, Text } from "@mantine/core";
import { useSearch } from "@tanstack/react-router";
import { useApproveBrowser } from "@/shared/api/login";
import { Approval } from "./approval";
import { LoginFrame } from "./frame";
import { leaveTo } from "./leave";

const CHALLENGE = /^[\w-]{43}$/;

/** Asks whether the commands that opened this page may log in, and sends the answer to them. */
export default function CommandsPage() {
  const { port, challenge = "", state = "", client = "" } = useSearch({ from: "/login/commands" });
  const approval = useApproveBrowser();
  if (port === undefined || !CHALLENGE.test(challenge) || state === "" || client === "") {
    return (
      <LoginFrame title="Log in commands">
        <Text ta="center">
          This address is not complete. Run <Code>trainhall login</Code> again.
        </Text>
      </LoginFrame>
    );
  }
  const answer = (code: string | null) => {
    const query = new URLSearchParams({ state, ...(code === null ? {} : { code }) });
    leaveTo(`http://127.0.0.1:${port}/?${query}`);
  };
  const decide = (approve: boolean) => {
    if (!approve) answer(null);
    else approval.mutate({ body: { challenge } }, { onSuccess: ({ code }) => answer(code) });
  };
  return (
    <LoginFrame title="Log in commands">
      <Approval
        client={client}
        code={challenge.slice(0, 6)}
        error={approval.error}
        isPending={approval.isPending || approval.isSuccess}
        onDecide={decide}
      />
    </LoginFrame>
  );
}
