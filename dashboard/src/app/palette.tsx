import { Combobox, Modal, TextInput, useCombobox } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useRouter } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { listJobsOptions } from "@/client/@tanstack/react-query.gen";
import { pageCommands } from "@/shared/page/commands";
import { SearchIcon } from "@/shared/ui/icons";
import { PAGES } from "./pages";
import classes from "./palette.module.css";

const TYPING_MS = 150;
const MAX_JOBS = 8;
const MAX_COMMANDS = 12;

interface Item {
  id: string;
  label: string;
  /** Beside the label: a job's state and id. */
  detail?: string;
  run: () => void;
}

interface Props {
  opened: boolean;
  onClose: () => void;
  /** Opens the list of keyboard shortcuts. */
  onHelp: () => void;
}

/** Goes to jobs and pages by their names, and runs the commands of the page. */
export function Palette({ opened, onClose, onHelp }: Props) {
  return (
    // It is gone at once: opened again while it fades, it would still hold the text of before.
    <Modal
      opened={opened}
      onClose={onClose}
      title="Go to"
      yOffset={80}
      size="lg"
      transitionProps={{ duration: 0 }}
    >
      <Choices onClose={onClose} onHelp={onHelp} />
    </Modal>
  );
}

function Choices({ onClose, onHelp }: Omit<Props, "opened">) {
  const [text, setText] = useState("");
  const groups = useGroups(text, onHelp);
  const list = useCombobox({ opened: true, onDropdownClose: onClose });
  const shown = groups.flatMap(({ items }) => items.map(({ id }) => id)).join();
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when other choices are shown
  useEffect(() => {
    list.selectFirstOption();
  }, [shown]);
  return (
    <Combobox
      store={list}
      onOptionSubmit={(id) => {
        onClose();
        groups
          .flatMap(({ items }) => items)
          .find((item) => item.id === id)
          ?.run();
      }}
    >
      <Combobox.EventsTarget withExpandedAttribute>
        <TextInput
          data-autofocus
          leftSection={<SearchIcon />}
          aria-label="Go to a job, a page or a command"
          placeholder="Job, page or command"
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
      </Combobox.EventsTarget>
      <Combobox.Options className={classes.options ?? ""} aria-label="Choices">
        {groups.map(({ label, items }) => (
          <Combobox.Group key={label} label={label}>
            {items.map((item) => (
              <Combobox.Option key={item.id} value={item.id} className={classes.option ?? ""}>
                <span className={classes.label}>{item.label}</span>
                {item.detail ? <span className={classes.detail}>{item.detail}</span> : null}
              </Combobox.Option>
            ))}
          </Combobox.Group>
        ))}
        {groups.length === 0 ? <Combobox.Empty>Nothing found</Combobox.Empty> : null}
      </Combobox.Options>
    </Combobox>
  );
}

/** The choices that match a text, without empty groups. */
function useGroups(text: string, onHelp: () => void): { label: string; items: Item[] }[] {
  const router = useRouter();
  const jobs = useJobs(text.trim());
  const goTo = (path: string) => () => router.history.push(path);
  const isIn = (name: string) => name.toLowerCase().includes(text.trim().toLowerCase());
  const matches = ({ label }: { label: string }) => isIn(label);
  const commands = [...pageCommands(), { label: "Keyboard shortcuts", run: onHelp }];
  return [
    {
      label: "This page",
      items: commands
        .filter(matches)
        .slice(0, MAX_COMMANDS)
        .map((each) => ({ ...each, id: `command ${each.label}` })),
    },
    {
      label: "Pages",
      items: PAGES.filter(matches).map(({ label, to }) => ({ id: to, label, run: goTo(to) })),
    },
    {
      label: "Jobs",
      // Those of the text before are still listed while the new ones load.
      items: jobs
        .filter(({ id, name }) => isIn(name) || isIn(id))
        .map(({ id, name, state }) => ({
          id,
          label: name,
          detail: `${state} · ${id.slice(0, 12)}`,
          run: goTo(`/jobs/${id}`),
        })),
    },
  ].filter(({ items }) => items.length > 0);
}

function useJobs(text: string) {
  const [search] = useDebouncedValue(text, TYPING_MS);
  const jobs = useQuery({
    ...listJobsOptions({ query: { search: search || undefined, limit: MAX_JOBS } }),
    placeholderData: keepPreviousData,
  });
  return jobs.data?.items ?? [];
}
