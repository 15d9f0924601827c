import { useState } from "react";
import { NameInput } from "./name-input";
import { RequestDialog, type Sendable } from "./request-dialog";

interface Props<Answer> {
  /** What gets the name: "project". */
  what: string;
  create: Sendable<Answer, { body: { name: string } }>;
  onClose: () => void;
}

/** Creates what has nothing but a name at first. */
export function NameDialog<Answer>({ what, create, onClose }: Props<Answer>) {
  const [text, setText] = useState("");
  const name = text.trim();
  return (
    <RequestDialog
      title={`New ${what}`}
      action={`Add ${what}`}
      request={create}
      body={name === "" ? null : { body: { name } }}
      failure={`Could not add the ${what}`}
      onClose={onClose}
    >
      <NameInput value={text} onChange={setText} />
    </RequestDialog>
  );
}
