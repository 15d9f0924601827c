import { Button, Group, Modal, Select, Stack, Text } from "@mantine/core";
import { useState } from "react";
import type { Job } from "@/shared/api/types";
import { IconButton } from "@/shared/ui/icon-button";
import { CancelIcon, DownIcon, PinIcon, UpIcon } from "@/shared/ui/icons";
import {
  added,
  available,
  type ColumnId,
  type Columns,
  DEFAULT_COLUMNS,
  moved,
  pinToggled,
  removed,
  titleOf,
} from "./columns";
import classes from "./jobs-table.module.css";

interface Props {
  columns: Columns;
  /** The jobs whose parameters and metrics are offered. */
  jobs: readonly Job[];
  onChange: (columns: Columns) => void;
}

/** A button that opens the choice of the columns, their order, and which of them stay in sight. */
export function ColumnChooser(props: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button size="xs" variant="default" onClick={() => setOpen(true)}>
        Columns
      </Button>
      <Modal opened={open} onClose={() => setOpen(false)} title="Columns" centered>
        <Choice {...props} />
      </Modal>
    </>
  );
}

function Choice({ columns, jobs, onChange }: Props) {
  const { ids, pinned } = columns;
  const groups = Object.entries(available(jobs, columns)).map(([group, offered]) => ({
    group,
    items: offered.map((id) => ({ value: id, label: optionOf(id) })),
  }));
  return (
    <Stack gap="sm">
      <ol className={classes.columns} aria-label="Columns in their order">
        {ids.map((id, i) => (
          <li key={id} data-pinned={i < pinned || undefined}>
            <Text size="sm" truncate title={id}>
              {titleOf(id)}
            </Text>
            <Group gap={2} wrap="nowrap">
              <IconButton
                label={i < pinned ? "Unpin" : "Pin to the left"}
                name={`Pin ${titleOf(id)}`}
                aria-pressed={i < pinned}
                color={i < pinned ? "ink" : "gray"}
                onClick={() => onChange(pinToggled(columns, id))}
              >
                <PinIcon />
              </IconButton>
              <IconButton
                label="Move left"
                name={`Move ${titleOf(id)} left`}
                disabled={i === 0}
                onClick={() => onChange(moved(columns, id, -1))}
              >
                <UpIcon />
              </IconButton>
              <IconButton
                label="Move right"
                name={`Move ${titleOf(id)} right`}
                disabled={i === ids.length - 1}
                onClick={() => onChange(moved(columns, id, 1))}
              >
                <DownIcon />
              </IconButton>
              <IconButton
                label="Remove"
                name={`Remove ${titleOf(id)}`}
                disabled={ids.length === 1}
                onClick={() => onChange(removed(columns, id))}
              >
                <CancelIcon />
              </IconButton>
            </Group>
          </li>
        ))}
      </ol>
      <Select
        label="Add a column"
        placeholder="A field, parameter or metric"
        data={groups}
        value={null}
        searchable
        maxDropdownHeight={260}
        nothingFoundMessage="No listed job has such a value"
        onChange={(id) => {
          if (id !== null) onChange(added(columns, id));
        }}
      />
      <Group justify="flex-end">
        <Button
          size="xs"
          variant="subtle"
          color="gray"
          onClick={() => onChange({ ids: DEFAULT_COLUMNS, pinned: 0 })}
        >
          Reset to default
        </Button>
      </Group>
    </Stack>
  );
}

function optionOf(id: ColumnId): string {
  return id.startsWith("metrics.") && !/\.(min|max)$/.test(id)
    ? `${titleOf(id)} (last)`
    : titleOf(id);
}
