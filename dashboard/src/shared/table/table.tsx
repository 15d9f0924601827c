import { measureElement, useWindowVirtualizer } from "@tanstack/react-virtual";
import {
  type ComponentProps,
  type CSSProperties,
  memo,
  type ReactNode,
  type Ref,
  useCallback,
  useEffect,
  useRef,
} from "react";
import { DownIcon, UpIcon } from "../ui/icons";
import classes from "./table.module.css";

export interface Column<Row> {
  /** The `data-cell` of its cells, and their grid area where rows are cards; there `data-label` is the header. */
  id: string;
  header: ReactNode;
  /** The header is for screen readers only. */
  hidden?: boolean;
  /** Numbers: aligned at the right. */
  right?: boolean;
  /** The cells stay on one line, unless rows are cards. */
  short?: boolean;
  /** The cells name their rows. */
  rowHeader?: boolean;
  width?: string;
  /** It stays so many pixels from the left while the others scroll. */
  left?: number;
  className?: string | undefined;
  /** The order of the rows by this column, which a press of its header changes. */
  sort?: { direction: "ascending" | "descending" | "none"; onPress: () => void };
  cell: (row: Row) => ReactNode;
}

interface Props<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string | number;
  rowProps?: (row: Row) => ComponentProps<"tr"> & { [data: `data-${string}`]: unknown };
  /** Content that replaces the cells of a row; null: the cells. */
  whole?: (row: Row) => ReactNode;
  className?: string | undefined;
  /** In pixels; a narrower frame scrolls. */
  minWidth?: number;
  /** Without a frame, inside a card. */
  bare?: boolean;
  /** Show rows as cards in a narrow window. */
  cards?: boolean;
  /** Draw only the rows on the screen. */
  virtual?: boolean;
  /** With `virtual`: gets the first and last row on the screen. */
  onScreen?: (first: number, last: number) => void;
}

/** A table in a frame that scrolls sideways where it must. */
export function Table<Row>(props: Props<Row>) {
  const { label, columns, rows, className = "", bare, cards = false, virtual, minWidth } = props;
  return (
    <div className={`${classes.frame} ${bare ? "" : "app-card"}`}>
      <table
        className={`${classes.table} ${cards ? classes.cards : ""} ${className}`}
        aria-label={label}
        style={
          { "--min-width": minWidth === undefined ? undefined : `${minWidth}px` } as CSSProperties
        }
        data-sortable={columns.some(({ sort }) => sort) || undefined}
        {...(virtual ? { "aria-rowcount": rows.length + 1 } : {})}
      >
        <thead>
          <tr>
            {columns.map((column) => (
              <Header key={column.id} column={column} />
            ))}
          </tr>
        </thead>
        {virtual ? (
          <RowsOnScreen {...props} />
        ) : (
          <tbody>
            {rows.map((row) => (
              <TableRow key={props.rowKey(row)} {...cellsOf(props)} row={row} />
            ))}
          </tbody>
        )}
      </table>
    </div>
  );
}

function Header<Row>({ column }: { column: Column<Row> }) {
  const { header, hidden, right, width, left, className, sort } = column;
  return (
    <th
      scope="col"
      className={className}
      style={{ width, left }}
      data-pinned={left !== undefined || undefined}
      data-right={right || undefined}
      aria-sort={sort?.direction}
    >
      {sort ? (
        <button type="button" className={classes.sort} onClick={sort.onPress}>
          {header}
          {sort.direction === "ascending" ? <UpIcon /> : null}
          {sort.direction === "descending" ? <DownIcon /> : null}
        </button>
      ) : hidden ? (
        <span className="sr-only">{header}</span>
      ) : (
        header
      )}
    </th>
  );
}

/** Pixels of a row before it is measured. */
const ESTIMATE = 60;
const estimateSize = () => ESTIMATE;

/** Leaves a new row to the observer of sizes: reading its height at once would force a layout. */
const sizeOfRow: typeof measureElement = (element, entry, virtual) =>
  entry
    ? measureElement(element, entry, virtual)
    : (virtual.measurementsCache[virtual.indexFromElement(element)]?.size ?? ESTIMATE);

function RowsOnScreen<Row>(props: Props<Row>) {
  const { columns, rows, rowKey, onScreen } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  const top = body.current ? body.current.getBoundingClientRect().top + window.scrollY : 0;
  // With another function the places of all rows would be found again.
  const getItemKey = useCallback((index: number) => rowKey(rows[index] as Row), [rows, rowKey]);
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize,
    getItemKey,
    overscan: 6,
    scrollMargin: top,
    measureElement: sizeOfRow,
    // New rows and their layout are two tasks.
    useFlushSync: false,
  });
  const items = virtual.getVirtualItems();
  const { startIndex = 0, endIndex = 0 } = virtual.range ?? {};
  useEffect(() => onScreen?.(startIndex, endIndex), [onScreen, startIndex, endIndex]);
  const above = (items[0]?.start ?? top) - top;
  const below = virtual.getTotalSize() + top - (items.at(-1)?.end ?? top);
  return (
    <tbody ref={body}>
      <Gap height={above} columns={columns.length} />
      {items.map(({ index, key }) => (
        <TableRow
          key={String(key)}
          {...cellsOf(props)}
          row={rows[index] as Row}
          measure={virtual.measureElement}
          index={index}
        />
      ))}
      <Gap height={below} columns={columns.length} />
    </tbody>
  );
}

/** The space of the rows that are not drawn. */
function Gap({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr className={classes.gap} style={{ height }}>
      <td colSpan={columns} />
    </tr>
  );
}

type Cells<Row> = Pick<Props<Row>, "columns" | "rowProps" | "whole">;

function cellsOf<Row>({ columns, rowProps, whole }: Cells<Row>): Cells<Row> {
  return { columns, rowProps, whole };
}

interface RowProps<Row> extends Cells<Row> {
  row: Row;
  measure?: Ref<HTMLTableRowElement>;
  index?: number;
}

function PlainRow<Row>(props: RowProps<Row>) {
  const { columns, rowProps, whole, row, measure, index } = props;
  const instead = whole?.(row) ?? null;
  const place =
    index === undefined ? {} : { ref: measure, "data-index": index, "aria-rowindex": index + 2 };
  return (
    <tr {...rowProps?.(row)} {...place}>
      {instead === null ? (
        columns.map((column) => <Cell key={column.id} column={column} row={row} />)
      ) : (
        <td colSpan={columns.length}>{instead}</td>
      )}
    </tr>
  );
}

/** Drawn again only when the row or the columns change; a poll leaves most rows as they are. */
const TableRow = memo(PlainRow) as typeof PlainRow;

function Cell<Row>({ column, row }: { column: Column<Row>; row: Row }) {
  const { id, header, right, short, rowHeader, left, className, cell } = column;
  const attributes = {
    className,
    "data-cell": id,
    "data-right": right || undefined,
    "data-short": short || undefined,
    "data-label": typeof header === "string" ? header : undefined,
    "data-pinned": left !== undefined || undefined,
    style: { "--area": id, left } as CSSProperties,
  };
  if (!rowHeader) return <td {...attributes}>{cell(row)}</td>;
  return (
    <th scope="row" {...attributes}>
      {cell(row)}
    </th>
  );
}
