import { TextInput, type TextInputProps } from "@mantine/core";

interface Props extends Omit<TextInputProps, "value" | "onChange"> {
  value: string;
  onChange: (name: string) => void;
}

/** The name of a user, a project and the like: the first input of a dialog. */
export function NameInput({ label = "Name", onChange, ...input }: Props) {
  return (
    <TextInput
      label={label}
      maxLength={128}
      autoComplete="off"
      spellCheck={false}
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
      data-autofocus
      {...input}
    />
  );
}
