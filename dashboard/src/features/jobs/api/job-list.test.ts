import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { renewed } from "./job-list";

/** Jobs named by their age: 9 is newer than 1. */
const jobs = (...numbers: number[]) =>
  numbers.map((n) => ({ id: `j${n}`, created_at: `2026-01-01T00:00:0${n}Z` }) as Job);
const page = (next_cursor: string | null, ...numbers: number[]) => ({
  items: jobs(...numbers),
  next_cursor,
});
const ids = ({ pages }: ReturnType<typeof renewed>) =>
  pages.map(({ items }) => items.map(({ id }) => id).join(" "));

const FIRST = {};
const LIST = {
  pages: [page("c5", 7, 6, 5), page("c2", 4, 3, 2), page(null, 1)],
  pageParams: [FIRST, "c5", "c2"],
};

it("a job that newer ones push off a page moves to the next", () => {
  const list = renewed(LIST, FIRST, page("c6", 8, 7, 6));
  expect(ids(list)).toEqual(["j8 j7 j6", "j5 j4 j3 j2", "j1"]);
  expect(list.pageParams).toEqual([FIRST, "c6", "c2"]);
  const next = renewed(list, "c6", page("c3", 5, 4, 3));
  expect(ids(next)).toEqual(["j8 j7 j6", "j5 j4 j3", "j2 j1"]);
  expect(next.pageParams).toEqual([FIRST, "c6", "c3"]);
});

it("a job that does not match any more goes, and later ones move up", () => {
  const list = renewed(LIST, FIRST, page("c4", 7, 5, 4));
  expect(ids(list)).toEqual(["j7 j5 j4", "j3 j2", "j1"]);
});

it("a page that has become the last one ends the list", () => {
  const list = renewed(LIST, "c5", page(null, 4));
  expect(ids(list)).toEqual(["j7 j6 j5", "j4"]);
  expect(list.pageParams).toEqual([FIRST, "c5"]);
});

it("an answer for a page that the list does not have changes nothing", () => {
  expect(renewed(LIST, "gone", page(null, 3))).toBe(LIST);
});

it("in another order a job is on one page alone", () => {
  const moved = renewed(LIST, "c5", page("c2", 7, 4, 1), false);
  expect(ids(moved)).toEqual(["j6 j5", "j7 j4 j1", ""]);
});
