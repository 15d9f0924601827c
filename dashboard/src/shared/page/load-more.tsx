import { Button } from "@mantine/core";

/** A query of a list that is read page by page. */
export interface PagedList {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}

/** The button below a list that has another page. */
export function LoadMore({ list }: { list: PagedList }) {
  if (!list.hasNextPage) return null;
  return (
    <Button
      variant="default"
      size="xs"
      loading={list.isFetchingNextPage}
      onClick={() => void list.fetchNextPage()}
      style={{ alignSelf: "center" }}
    >
      Load more
    </Button>
  );
}
