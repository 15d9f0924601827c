import { Button } from "@mantine/core";

interface Props {
  list: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };
}

/** The button below a list that has another page. */
export function LoadMore({ list }: Props) {
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
