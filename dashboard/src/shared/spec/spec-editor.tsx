import { Alert } from "@mantine/core";
import { type ReactNode, useMemo, useRef } from "react";
import { ApiError } from "@/shared/api/problem";
import { LinkedText } from "@/shared/ui/linked-text";
import { Editor, type EditorHandle } from "./editor";
import { locate } from "./locate";
import classes from "./spec-editor.module.css";

interface Props {
  /** Its name for screen readers: "Job spec in YAML". */
  label: string;
  value: string;
  onChange: (text: string) => void;
  onSubmit: () => void;
  /** The text that was sent last: its errors are marked only while the text is unchanged. */
  sent: string;
  /** The failure of the text that was sent last. */
  error: unknown;
  /** The outcome that is shown when no field is wrong. */
  children: ReactNode;
}

/** A YAML editor, and below it the outcome of the last request or the errors, each with its line. */
export function SpecEditor(props: Props) {
  const { label, value, onChange, onSubmit, sent, error, children } = props;
  const editor = useRef<EditorHandle>(null);
  const fields = error instanceof ApiError ? error.fields : null;
  const located = useMemo(() => (fields ? locate(sent, fields) : []), [fields, sent]);
  const marks = value === sent ? located : [];
  return (
    <>
      <div className={`app-card ${classes.editor}`} data-wrong={marks.length > 0 || undefined}>
        <Editor
          label={label}
          value={value}
          onChange={onChange}
          problems={marks}
          onSubmit={onSubmit}
          handle={editor}
        />
      </div>
      <div aria-live="polite">
        {located.length > 0 ? (
          <Alert
            color="red"
            variant="light"
            title={error instanceof ApiError ? error.title : ""}
            role="alert"
          >
            <ul className={classes.problems}>
              {located.map((problem) => (
                <li key={`${problem.field} ${problem.message}`}>
                  <button
                    type="button"
                    className={classes.problem}
                    onClick={() => editor.current?.goTo(problem.from)}
                  >
                    <span className={classes.line}>line {problem.line}</span>
                    {problem.field ? <code>{problem.field}</code> : null}{" "}
                    <LinkedText text={problem.message} />
                  </button>
                </li>
              ))}
            </ul>
          </Alert>
        ) : (
          children
        )}
      </div>
    </>
  );
}
