import { Typography } from "@mantine/core";
import { type ComponentType, isValidElement, type ReactNode } from "react";
import Markdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import classes from "./markdown.module.css";

/** Components that show the fenced blocks of a language in place of their text. */
export type Blocks = ReadonlyMap<string, ComponentType<{ text: string }>>;

interface Props {
  text: string;
  /** The same object at every render, or what the blocks show is mounted again. */
  blocks?: Blocks;
}

/** Tables, task lists, strikethrough and bare addresses, as on GitHub. */
const PLUGINS = [remarkGfm];
const NO_BLOCKS: Blocks = new Map();
const components = new WeakMap<Blocks, Components>();

/** Markdown of users: react-markdown shows HTML as text and leaves out links that run scripts. */
export default function SafeMarkdown({ text, blocks = NO_BLOCKS }: Props) {
  return (
    <Typography fz="sm" className={classes.text}>
      {/* An image would make every reader's browser call its host. */}
      <Markdown
        remarkPlugins={PLUGINS}
        disallowedElements={["img"]}
        components={componentsFor(blocks)}
      >
        {text}
      </Markdown>
    </Typography>
  );
}

function componentsFor(blocks: Blocks): Components {
  const made = components.get(blocks) ?? {
    a: ({ href, children }) => (
      <a href={href} target="_blank" rel="noreferrer noopener">
        {children}
      </a>
    ),
    pre: ({ children }) => <Fenced blocks={blocks}>{children}</Fenced>,
  };
  components.set(blocks, made);
  return made;
}

function Fenced({ blocks, children }: { blocks: Blocks; children?: ReactNode }) {
  if (isValidElement<{ className?: string; children?: ReactNode }>(children)) {
    const { className = "", children: text } = children.props;
    const Block = blocks.get(className.replace("language-", ""));
    if (Block !== undefined) return <Block text={String(text ?? "")} />;
  }
  return <pre>{children}</pre>;
}
