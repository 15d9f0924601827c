import { TextInput, type TextInputProps } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useState } from "react";
import { SearchIcon } from "./icons";

const TYPING_MS = 150;

interface Props extends Omit<TextInputProps, "value" | "onChange" | "onBlur" | "onKeyDown"> {
  /** The text that is searched for, as in the URL. */
  value: string;
  /** Called with the text after a pause in typing, or at once by Enter and on leaving the field. */
  onSearch: (text: string) => void;
  /** Called by Enter with the field's text, after `onSearch`. */
  onEnter?: (text: string, shift: boolean) => void;
}

/** A text field for a search that the URL keeps. Escape empties it. */
export function SearchField({ value, onSearch, onEnter, ...rest }: Props) {
  // While it is typed in, the field has its own text: the router renders a new URL too late for
  // React, which would put the cursor at the end.
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? value;
  const search = useDebouncedCallback(onSearch, TYPING_MS);
  const type = (next: string): void => {
    setTyped(next);
    search(next);
  };
  return (
    <TextInput
      size="xs"
      leftSection={<SearchIcon />}
      {...rest}
      value={text}
      onChange={(event) => type(event.currentTarget.value)}
      onBlur={() => {
        search.flush();
        setTyped(null);
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") type("");
        if (event.key !== "Enter") return;
        search.flush();
        onEnter?.(text, event.shiftKey);
      }}
    />
  );
}
