import { Alert } from "@mantine/core";
import { type ReactNode, useMemo, useRef } from "react";
import type { FieldProblem } from "@/shared/api/problem";
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
  /** What is wrong with the text as it is. */
  problems: readonly FieldProblem[];
  /** "The spec is not valid". */
  problemTitle: string;
  /** The outcome that is shown when no field is wrong. */
  children: ReactNode;
}

/** A YAML editor, and below it the outcome of the last request or the errors, each with its line. */
export function SpecEditor(props: Props) {
  const { label, value, onChange, onSubmit, problems, problemTitle, children } = props;
  const editor = useRef<EditorHandle>(null);
  const located = useMemo(
    () => (problems.length > 0 ? locate(value, problems) : []),
    [value, problems],
  );
  return (
    <>
      <div className={`app-card ${classes.editor}`} data-wrong={located.length > 0 || undefined}>
        <Editor
          label={label}
          value={value}
          onChange={onChange}
          problems={located}
          onSubmit={onSubmit}
          handle={editor}
        />
      </div>
      <div aria-live="polite">
        {located.length > 0 ? (
          <Alert color="red" variant="light" title={problemTitle} role="alert">
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
