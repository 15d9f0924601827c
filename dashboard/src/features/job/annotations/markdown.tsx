import { Typography } from "@mantine/core";
import Markdown from "react-markdown";

/** Markdown of users: react-markdown shows HTML as text and leaves out links that run scripts. */
export default function SafeMarkdown({ text }: { text: string }) {
  return (
    <Typography fz="sm">
      <Markdown
        // An image would make every reader's browser call its host.
        disallowedElements={["img"]}
        components={{
          a: ({ href, children }) => (
            <a href={href} target="_blank" rel="noreferrer noopener">
              {children}
            </a>
          ),
        }}
      >
        {text}
      </Markdown>
    </Typography>
  );
}
