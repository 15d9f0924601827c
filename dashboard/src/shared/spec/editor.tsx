import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useImperativeHandle, useRef } from "react";
import type { Located } from "./locate";

export interface EditorHandle {
  /** Put the cursor at an offset, and the keyboard into the editor. */
  goTo: (offset: number) => void;
}

interface Props {
  /** Its name for screen readers. */
  label: string;
  value: string;
  onChange: (text: string) => void;
  problems: readonly Located[];
  onSubmit: () => void;
  handle: React.Ref<EditorHandle>;
}

const colors = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--ansi-blue)" },
  { tag: [tags.string, tags.content], color: "var(--mantine-color-text)" },
  { tag: [tags.number, tags.bool], color: "var(--ansi-magenta)" },
  { tag: tags.comment, color: "var(--mantine-color-dimmed)", fontStyle: "italic" },
]);

const look = EditorView.theme({
  "&": { fontSize: "13px", backgroundColor: "var(--app-surface)", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-content": {
    fontFamily: "var(--mantine-font-family-monospace)",
    padding: "10px 0",
    caretColor: "var(--mantine-color-text)",
  },
  ".cm-scroller": { overflow: "auto", lineHeight: "1.6" },
  ".cm-gutters": {
    backgroundColor: "var(--app-surface)", // long lines scroll below it
    color: "var(--mantine-color-dimmed)",
    border: "none",
  },
  ".cm-cursor": { borderLeftColor: "var(--mantine-color-text)" },
  ".cm-activeLine": {
    backgroundColor: "color-mix(in srgb, var(--mantine-primary-color-filled) 6%, transparent)",
  },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    background:
      "color-mix(in srgb, var(--mantine-primary-color-filled) 25%, transparent) !important",
  },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    backgroundColor: "color-mix(in srgb, var(--mantine-color-red-6) 18%, transparent)",
    borderBottom: "2px solid var(--mantine-color-red-6)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--app-surface)",
    border: "1px solid var(--app-border)",
    color: "var(--mantine-color-text)",
  },
});

/** A YAML editor with its own text; a `value` that differs replaces it. */
export function Editor({ label, value, onChange, problems, onSubmit, handle }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const callbacks = useRef({ onChange, onSubmit });
  callbacks.current = { onChange, onSubmit };
  const initial = useRef({ label, value });

  useEffect(() => {
    if (host.current === null) return;
    const editor = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: initial.current.value,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          indentUnit.of("  "),
          yaml(),
          syntaxHighlighting(colors),
          lintGutter(),
          look,
          // Tab leaves the editor, as everywhere on the page; Ctrl-Enter submits.
          keymap.of([
            {
              key: "Mod-Enter",
              run: () => {
                callbacks.current.onSubmit();
                return true;
              },
            },
            ...defaultKeymap,
            ...historyKeymap,
          ]),
          EditorView.contentAttributes.of({
            "aria-label": initial.current.label,
            "aria-multiline": "true",
            // Browsers focus it without; checkers of accessibility do not know that.
            tabindex: "0",
          }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) callbacks.current.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => {
      view.current = null;
      editor.destroy();
    };
  }, []);

  useEffect(() => {
    const editor = view.current;
    if (editor === null || editor.state.doc.toString() === value) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
  }, [value]);

  useEffect(() => {
    const editor = view.current;
    if (editor === null) return;
    const size = editor.state.doc.length;
    const diagnostics = problems.map(
      (problem): Diagnostic => ({
        from: Math.min(problem.from, size),
        to: Math.min(problem.to, size),
        severity: "error",
        message: problem.message,
      }),
    );
    editor.dispatch(setDiagnostics(editor.state, diagnostics));
  }, [problems]);

  useImperativeHandle(handle, () => ({
    goTo: (offset) => {
      const editor = view.current;
      if (editor === null) return;
      const anchor = Math.min(offset, editor.state.doc.length);
      editor.dispatch({ selection: { anchor }, scrollIntoView: true });
      editor.focus();
    },
  }));

  return <div ref={host} style={{ height: "100%" }} data-testid="editor" />;
}
