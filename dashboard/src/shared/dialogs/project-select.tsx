import { NativeSelect } from "@mantine/core";
import { useMe } from "../api/login";

interface Props {
  /** The label of the choice of none. */
  none: string;
  description?: string;
  /** Empty: none. */
  value: string;
  onChange: (project: string) => void;
}

/** One of the projects that the user sees, or none. */
export function ProjectSelect({ none, onChange, ...input }: Props) {
  const names = (useMe().data?.projects ?? []).map(({ name }) => name);
  return (
    <NativeSelect
      label="Project"
      data={[{ value: "", label: none }, ...names.map((name) => ({ value: name, label: name }))]}
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
      {...input}
    />
  );
}
