import { Group, NativeSelect, SegmentedControl } from "@mantine/core";
import { useMe } from "../api/login";
import { rememberScope, type Scope } from "./scope";

interface Props {
  scope: Scope;
  onChange: (next: Scope) => void;
}

/** Chooses whose jobs, experiments or reports a list has; nothing where there is one user. */
export function ScopeSwitch({ scope, onChange }: Props) {
  const me = useMe().data;
  const names = (me?.projects ?? []).map(({ name }) => name);
  const isAlone = me === undefined || me.how === "none";
  if (scope.project !== undefined && !names.includes(scope.project)) names.push(scope.project);
  const change = (part: Scope) => {
    const next = { ...scope, ...part };
    rememberScope(next);
    onChange(next);
  };
  if (names.length < 2 && isAlone && !scope.mine) return null;
  return (
    <Group gap="xs" wrap="nowrap">
      {isAlone && !scope.mine ? null : (
        <SegmentedControl
          size="xs"
          aria-label="Owner"
          data={[
            { value: "all", label: "All" },
            { value: "mine", label: "Mine" },
          ]}
          value={scope.mine ? "mine" : "all"}
          onChange={(value) => change({ mine: value === "mine" ? true : undefined })}
        />
      )}
      {names.length < 2 && scope.project === undefined ? null : (
        <NativeSelect
          size="xs"
          aria-label="Project"
          maw={180}
          value={scope.project ?? ""}
          onChange={({ currentTarget }) => change({ project: currentTarget.value || undefined })}
          data={[
            { value: "", label: "All projects" },
            ...names.map((name) => ({ value: name, label: name })),
          ]}
        />
      )}
    </Group>
  );
}
