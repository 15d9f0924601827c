import { lazyComponent } from "@/shared/page/lazy-component";
import { ReportChart } from "./report-chart";
import classes from "./reports.module.css";

const Markdown = lazyComponent(() => import("@/shared/ui/markdown"), "the text");
const BLOCKS = new Map([["chart", ReportChart]]);

/** The text of a report, with its charts. */
export function ReportBody({ text }: { text: string }) {
  return (
    <div className={classes.body}>
      <Markdown text={text} blocks={BLOCKS} />
    </div>
  );
}
