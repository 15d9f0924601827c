import { Alert, Button, Code, Group, Text } from "@mantine/core";
import { useMe } from "@/shared/api/login";
import { Problem } from "@/shared/ui/problem";

interface Props {
  /** Name of the host, as the commands give it. */
  client: string;
  /** Code that the commands show, too. */
  code: string;
  /** Address that they asked from; left out: this host. */
  address?: string;
  error: unknown;
  isPending: boolean;
  onDecide: (approve: boolean) => void;
}

/** Asks the user whether commands may act as them. */
export function Approval({ client, code, address, error, isPending, onDecide }: Props) {
  const { data: me } = useMe();
  return (
    <>
      <Text>
        Commands on <b>{client}</b> {address === undefined ? "" : `(${address}) `}ask to act as{" "}
        <b>{me?.user}</b>. They show the code <b style={{ whiteSpace: "nowrap" }}>{code}</b>.
      </Text>
      <Alert color="orange" variant="light">
        Approve only a login that you have just started yourself, with <Code>trainhall login</Code>.
      </Alert>
      {error ? <Problem error={error} what="Could not answer the login" /> : null}
      <Group grow>
        <Button variant="default" disabled={isPending} onClick={() => onDecide(false)}>
          Refuse
        </Button>
        <Button loading={isPending} onClick={() => onDecide(true)}>
          Approve
        </Button>
      </Group>
    </>
  );
}
