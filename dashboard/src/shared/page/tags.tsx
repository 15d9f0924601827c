import { Group } from "@mantine/core";
import { quoted } from "../query";
import { BadgeLink } from "../ui/links";

/** The tags of a job; each leads to the jobs that have it. */
export function Tags({ tags }: { tags: readonly string[] }) {
  if (tags.length === 0) return null;
  return (
    <Group gap={4} component="ul" m={0} p={0} aria-label="Tags" style={{ listStyle: "none" }}>
      {tags.map((tag) => (
        <li key={tag}>
          <BadgeLink
            to="/jobs"
            search={{ query: `tag:${quoted(tag)}` }}
            size="xs"
            variant="light"
            color="gray"
            tt="none"
            style={{ cursor: "pointer" }}
          >
            {tag}
          </BadgeLink>
        </li>
      ))}
    </Group>
  );
}
