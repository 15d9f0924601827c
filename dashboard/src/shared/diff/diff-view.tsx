import classes from "./diff-view.module.css";

/** More lines are slow to draw, and nobody reads them here. */
const MAX_LINES = 2000;

/** A unified diff, its lines coloured by kind. */
export function DiffView({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const shown = lines.slice(0, MAX_LINES);
  const more = lines.length - shown.length;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <pre className={`app-card ${classes.diff}`} tabIndex={0}>
      {shown.map((line, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines of a diff never change
        <span key={i} className={`${classes.line} ${kindOf(line)}`}>
          {line}
        </span>
      ))}
      {more > 0 ? (
        <span className={`${classes.line} ${classes.head}`}>{more} more lines</span>
      ) : null}
    </pre>
  );
}

function kindOf(line: string): string {
  if (/^(diff |index |--- |\+\+\+ |@@|\\ )/.test(line)) return classes.head ?? "";
  if (line.startsWith("+")) return classes.added ?? "";
  return line.startsWith("-") ? (classes.removed ?? "") : "";
}
