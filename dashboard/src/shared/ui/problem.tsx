import { Alert, Button, Group, Skeleton, Text } from "@mantine/core";
import { ApiError, isForbidden } from "../api/problem";
import { AlertIcon } from "./icons";
import { LinkedText } from "./linked-text";

interface Props {
  error: unknown;
  /** "Could not load the jobs". */
  what: string;
  onRetry?: () => void;
  onClose?: () => void;
}

/** A failed request: its title, its detail and a way to try again. */
export function Problem({ error, what, onRetry, onClose }: Props) {
  // Of a refused login the detail says more, and elsewhere a 401 leads to the login page.
  const title = error instanceof ApiError && ![0, 401].includes(error.status) ? error.title : "";
  const detail = error instanceof Error ? error.message : String(error);
  const fields = error instanceof ApiError ? error.fields : [];
  return (
    <Alert
      color={error instanceof ApiError && error.status === 0 ? "orange" : "red"}
      variant="light"
      title={title ? `${what}: ${title}` : what}
      icon={<AlertIcon />}
      role="alert"
      withCloseButton={onClose !== undefined}
      closeButtonLabel="Dismiss"
      {...(onClose ? { onClose } : {})}
    >
      <Group justify="space-between" align="flex-end" wrap="nowrap">
        <div>
          {/* The detail of a problem with fields repeats them. */}
          {fields.length === 0 ? (
            <Text size="sm">
              <LinkedText text={detail} />
            </Text>
          ) : null}
          {fields.map((field) => (
            <Text key={`${field.field} ${field.message}`} size="sm">
              {field.field ? <code>{field.field}</code> : null} <LinkedText text={field.message} />
            </Text>
          ))}
        </div>
        {onRetry ? (
          <Button size="xs" variant="default" flex="none" onClick={onRetry}>
            Try again
          </Button>
        ) : null}
      </Group>
    </Alert>
  );
}

interface PendingProps {
  query: { data?: unknown; error: unknown; refetch: () => unknown };
  /** "the jobs". */
  what: string;
  height?: number;
}

/** A query's error, or a placeholder while it has no data; nothing when it has. */
export function Pending({ query, what, height = 160 }: PendingProps) {
  const { data, error, refetch } = query;
  if (error) {
    const retry = isForbidden(error) ? {} : { onRetry: () => void refetch() };
    return <Problem error={error} what={`Could not load ${what}`} {...retry} />;
  }
  return data === undefined ? <Skeleton height={height} /> : null;
}
