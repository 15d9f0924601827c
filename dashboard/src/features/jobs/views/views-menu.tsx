import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import {
  deleteViewMutation,
  listViewsOptions,
  listViewsQueryKey,
  saveViewMutation,
} from "@/client/@tanstack/react-query.gen";
import { IconButton } from "@/shared/ui/icon-button";
import { TrashIcon } from "@/shared/ui/icons";
import { AnchorLink } from "@/shared/ui/links";
import { Pending, Problem } from "@/shared/ui/problem";
import { searchOf, type ViewSearch, viewOf } from "./saved-views";

/** A button that opens the saved views, and saves the present one for all users. */
export function ViewsMenu({ search }: { search: ViewSearch }) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <Button size="xs" variant="default" onClick={() => setOpen(true)}>
        Views
      </Button>
      <Modal opened={open} onClose={close} title="Views" centered>
        <Stack gap="md">
          <SavedViews onClose={close} />
          <SaveView search={search} onSaved={close} />
        </Stack>
      </Modal>
    </>
  );
}

function SavedViews({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const views = useQuery(listViewsOptions());
  const remove = useMutation({
    ...deleteViewMutation(),
    onSuccess: () => client.invalidateQueries({ queryKey: listViewsQueryKey() }),
  });
  if (views.data === undefined) return <Pending query={views} what="the views" height={60} />;
  if (views.data.items.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        No view is saved yet.
      </Text>
    );
  }
  return (
    <>
      <ul aria-label="Saved views" style={{ margin: 0, padding: 0, listStyle: "none" }}>
        {views.data.items.map((view) => (
          <Group key={view.name} component="li" justify="space-between" wrap="nowrap">
            <AnchorLink to="/jobs" search={searchOf(view)} size="sm" truncate onClick={onClose}>
              {view.name}
            </AnchorLink>
            <IconButton
              label="Delete for all users"
              name={`Delete ${view.name}`}
              onClick={() => remove.mutate({ path: { name: view.name } })}
            >
              <TrashIcon />
            </IconButton>
          </Group>
        ))}
      </ul>
      {remove.error ? <Problem error={remove.error} what="Could not delete the view" /> : null}
    </>
  );
}

function SaveView({ search, onSaved }: { search: ViewSearch; onSaved: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const save = useMutation({
    ...saveViewMutation(),
    onSuccess: async () => {
      onSaved();
      await client.invalidateQueries({ queryKey: listViewsQueryKey() });
    },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate({ body: viewOf(name.trim(), search) });
      }}
    >
      <Stack gap="sm">
        <TextInput
          label="Save this view as"
          description="Filters, order, columns and groups, for all users"
          value={name}
          maxLength={64}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        {save.error ? <Problem error={save.error} what="Could not save the view" /> : null}
        <Group justify="flex-end">
          <Button type="submit" size="xs" disabled={name.trim() === ""} loading={save.isPending}>
            Save view
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
