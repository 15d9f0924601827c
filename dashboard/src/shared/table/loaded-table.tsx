import type { ReactNode } from "react";
import { LoadMore, type PagedList } from "../page/load-more";
import { Pending } from "../ui/problem";
import stacked from "./stacked.module.css";
import { type Column, Table } from "./table";

interface Props<Row> {
  /** The query of the rows; below one of several pages is a button for more. */
  list: { data?: unknown; error: unknown; refetch: () => unknown } & (PagedList | object);
  rows: readonly Row[] | undefined;
  /** "the users". */
  what: string;
  /** In place of no rows. */
  empty: ReactNode;
  label: string;
  columns: readonly Column<Row>[];
  rowKey: (row: Row) => string | number;
}

/** A table once its rows are read. In a narrow window each is a card with a line for each cell. */
export function LoadedTable<Row>({ list, rows = [], what, empty, ...table }: Props<Row>) {
  return (
    <>
      <Pending query={list} what={what} />
      {list.data !== undefined && rows.length === 0 ? empty : null}
      {rows.length > 0 ? <Table {...table} rows={rows} className={stacked.stacked} cards /> : null}
      {"hasNextPage" in list ? <LoadMore list={list} /> : null}
    </>
  );
}

/** The last column: what can be done with a row. */
export function commandsColumn<Row>(cell: (row: Row) => ReactNode): Column<Row> {
  return { id: "commands", header: "Commands", hidden: true, right: true, short: true, cell };
}
