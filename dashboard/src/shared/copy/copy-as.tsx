import { Button, Menu } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { CheckIcon, CopyIcon } from "../ui/icons";
import type { Snippets } from "./snippets";

const FORMS: { key: keyof Snippets; label: string }[] = [
  { key: "cli", label: "Command line" },
  { key: "curl", label: "curl" },
  { key: "python", label: "Python" },
];

/** A menu that copies what the page shows or sends, as a program elsewhere repeats it. */
export function CopyAs({ snippets }: { snippets: () => Snippets }) {
  const { copied, copy } = useClipboard({ timeout: 1500 });
  return (
    <Menu position="bottom-end" width={180}>
      <Menu.Target>
        <Button size="xs" variant="default" leftSection={copied ? <CheckIcon /> : <CopyIcon />}>
          <span aria-live="polite">{copied ? "Copied" : "Copy as"}</span>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Forms snippets={snippets} onCopy={copy} />
      </Menu.Dropdown>
    </Menu>
  );
}

function Forms({ snippets, onCopy }: { snippets: () => Snippets; onCopy: (text: string) => void }) {
  const texts = snippets();
  return FORMS.map(({ key, label }) => {
    const text = texts[key];
    return (
      <Menu.Item
        key={key}
        disabled={text === undefined}
        {...(text === undefined ? { title: "The document is not valid YAML" } : {})}
        onClick={() => onCopy(text ?? "")}
      >
        {label}
      </Menu.Item>
    );
  });
}
