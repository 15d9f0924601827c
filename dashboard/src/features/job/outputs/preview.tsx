import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { contentOptions, type Output } from "@/features/job/api/outputs";
import { bytes, count, metric } from "@/shared/format";
import { lazyComponent } from "@/shared/page/lazy-component";
import { type Column, Table } from "@/shared/table/table";
import { Pending } from "@/shared/ui/problem";
import { BlobImage } from "./blob-image";
import {
  imageType,
  type Kind,
  kindOf,
  LIMITS,
  MAX_ROWS,
  readableJson,
  rowsOfCsv,
  textOf,
} from "./kinds";
import classes from "./outputs-tab.module.css";

const Markdown = lazyComponent(() => import("@/shared/ui/markdown"), "the text");

/** What is in a file, as far as that can be shown here. */
export function Preview({ jobId, file }: { jobId: string; file: Output }) {
  const kind = kindOf(file.path);
  const most = LIMITS[kind];
  const isTooLarge = kind === "image" && file.size > most;
  const content = useQuery({ ...contentOptions(jobId, file, most), enabled: !isTooLarge });
  if (isTooLarge) return <Note>Images above {bytes(most)} are not shown; download it.</Note>;
  if (file.size === 0) return <Note>The file is empty.</Note>;
  if (content.data === undefined) return <Pending query={content} what="the file" height={80} />;
  if (kind === "image") {
    return (
      <BlobImage
        content={content.data}
        type={imageType(file.path)}
        alt={file.path}
        className={classes.image}
      />
    );
  }
  const text = textOf(content.data);
  if (text === null) return <Note>There is no preview of binary files; download it.</Note>;
  return (
    <>
      <ShownText kind={kind} path={file.path} text={text} />
      {file.size > most ? (
        <Note>
          The first {bytes(most)} of {bytes(file.size)}; the download has all of it.
        </Note>
      ) : null}
    </>
  );
}

interface TextProps {
  kind: Exclude<Kind, "image">;
  path: string;
  text: string;
}

function ShownText({ kind, path, text }: TextProps) {
  if (kind === "csv")
    return <CsvTable text={text} separator={path.toLowerCase().endsWith(".tsv") ? "\t" : ","} />;
  if (kind === "markdown") return <Markdown text={text} />;
  return (
    // Keyboards scroll it, too.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: as above
    <pre className={classes.text} tabIndex={0}>
      {kind === "json" ? readableJson(text) : text}
    </pre>
  );
}

function CsvTable({ text, separator }: { text: string; separator: "," | "\t" }) {
  const [header = [], ...rows] = rowsOfCsv(text, separator, MAX_ROWS + 2);
  return <CellTable header={header} rows={rows} />;
}

type Cell = string | number | boolean | null;

/** The first rows of a table. */
export function CellTable({ header, rows }: { header: string[]; rows: Cell[][] }) {
  const columns: Column<{ cells: Cell[]; index: number }>[] = header.map((name, index) => ({
    id: String(index),
    header: name,
    right: rows.every((row) => row[index] === "" || Number.isFinite(Number(row[index]))),
    short: true,
    cell: ({ cells }) => cellText(cells[index]),
  }));
  const shown = rows.slice(0, MAX_ROWS).map((cells, index) => ({ cells, index }));
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: keyboards scroll it, too */}
      <div className={classes.scroll} tabIndex={0}>
        <Table
          label="Rows of the file"
          columns={columns}
          rows={shown}
          rowKey={({ index }) => index}
          className={classes.cells}
          bare
        />
      </div>
      {rows.length > MAX_ROWS ? <Note>The first {count(MAX_ROWS)} rows.</Note> : null}
    </>
  );
}

/** Numbers of a file stay as they are written there; those of a table are rounded. */
function cellText(cell: Cell | undefined): string {
  const isRounded = typeof cell === "number" && !Number.isInteger(cell);
  return isRounded ? metric(cell) : String(cell ?? "");
}

function Note({ children }: { children: React.ReactNode }) {
  return (
    <Text size="xs" c="dimmed">
      {children}
    </Text>
  );
}
