import { linkOptions } from "@tanstack/react-router";
import { quoted } from "../query";
import { RowLink } from "../table/row-link";
import classes from "./tags.module.css";

/** The tags of a job; each leads to the jobs that have it. */
export function Tags({ tags }: { tags: readonly string[] }) {
  if (tags.length === 0) return null;
  return (
    <ul className={classes.tags} aria-label="Tags">
      {tags.map((tag) => (
        <li key={tag}>
          <RowLink
            link={linkOptions({ to: "/jobs", search: { query: `tag:${quoted(tag)}` } })}
            className={classes.tag}
          >
            {tag}
          </RowLink>
        </li>
      ))}
    </ul>
  );
}
