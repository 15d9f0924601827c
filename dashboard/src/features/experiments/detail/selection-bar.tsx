import { Button, Group, Text } from "@mantine/core";
import { MAX_COMPARED } from "@/shared/api/types";
import { count, plural } from "@/shared/format";
import { CompareButton } from "./compare-button";
import type { Configuration } from "./trials";

interface Props {
  configurations: readonly Configuration[];
  selected: ReadonlySet<number> | null;
  onClear: () => void;
}

/** How many trials are selected, and what can be done with them. */
export function SelectionBar({ configurations, selected, onClear }: Props) {
  const chosen = configurations.filter(({ number }) => selected?.has(number));
  const jobs = chosen.flatMap(({ runs }) => runs.flatMap(({ job_id: id }) => id ?? []));
  return (
    <Group gap="sm" mih={30}>
      <Text size="sm" className="numbers" role="status">
        {selected === null
          ? plural(configurations.length, "trial")
          : `${count(chosen.length)} of ${plural(configurations.length, "trial")} selected`}
      </Text>
      {selected === null ? null : (
        <>
          <Button size="compact-xs" variant="default" onClick={onClear}>
            Clear selection
          </Button>
          {jobs.length > 0 && jobs.length <= MAX_COMPARED ? <CompareButton jobs={jobs} /> : null}
        </>
      )}
    </Group>
  );
}
