import { Button, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { useDecideDevice, useDeviceRequest } from "@/shared/api/login";
import { Problem } from "@/shared/ui/problem";
import { Approval } from "./approval";
import { LoginFrame } from "./frame";

/** Takes the code of commands on any host, and asks whether they may log in. */
export default function DevicePage() {
  const [text, setText] = useState("");
  const [code, setCode] = useState("");
  const request = useDeviceRequest(code);
  const decision = useDecideDevice();
  if (decision.isSuccess) return <Done approved={decision.variables.body.approve} />;
  if (request.data) {
    const { user_code, client, address } = request.data;
    return (
      <LoginFrame title="Log in commands">
        <Approval
          client={client}
          code={user_code}
          address={address}
          error={decision.error}
          isPending={decision.isPending}
          onDecide={(approve) => decision.mutate({ path: { user_code }, body: { approve } })}
        />
      </LoginFrame>
    );
  }
  const typed = text.trim();
  return (
    <LoginFrame title="Log in commands">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (typed === code) request.refetch();
          else setCode(typed);
        }}
      >
        <Stack gap="sm">
          <TextInput
            label="Code"
            description="As trainhall login shows it."
            placeholder="WDJB-MJHT"
            value={text}
            autoComplete="off"
            spellCheck={false}
            data-autofocus
            onChange={(event) => setText(event.currentTarget.value)}
          />
          {request.error ? <Problem error={request.error} what="Could not find the login" /> : null}
          <Button type="submit" disabled={typed === ""} loading={request.isFetching}>
            Continue
          </Button>
        </Stack>
      </form>
    </LoginFrame>
  );
}

function Done({ approved }: { approved: boolean }) {
  return (
    <LoginFrame title={approved ? "Login approved" : "Login refused"}>
      <Text ta="center">You can close this page.</Text>
      <Button component="a" href="/jobs" variant="default">
        Open the dashboard
      </Button>
    </LoginFrame>
  );
}
