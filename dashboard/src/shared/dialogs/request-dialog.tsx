import type { ReactNode } from "react";
import { Problem } from "../ui/problem";
import { Dialog } from "./dialog";

/** A mutation of TanStack Query. */
export interface Sendable<Answer, Body> {
  isPending: boolean;
  error: unknown;
  mutate: (body: Body, options: { onSuccess: (answer: Answer) => void }) => void;
}

interface Props<Answer, Body> {
  title: string;
  /** The label of the button that submits. */
  action: string;
  request: Sendable<Answer, Body>;
  /** What the form sends; null: it is not complete. */
  body: Body | null;
  /** "Could not add the user". */
  failure: string;
  /** After a success; left out: the dialog closes. */
  onDone?: (answer: Answer) => void;
  onClose: () => void;
  children: ReactNode;
}

/** A form in a dialog that sends a request, and shows why it failed. */
export function RequestDialog<Answer, Body>(props: Props<Answer, Body>) {
  const { title, action, request, body, failure, onClose, onDone = onClose } = props;
  return (
    <Dialog
      title={title}
      action={action}
      busy={request.isPending}
      disabled={body === null}
      onClose={onClose}
      onSubmit={() => {
        if (body !== null) request.mutate(body, { onSuccess: onDone });
      }}
    >
      {props.children}
      {request.error ? <Problem error={request.error} what={failure} /> : null}
    </Dialog>
  );
}
