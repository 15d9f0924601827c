import { Button, Menu } from "@mantine/core";
import type { Experiment } from "@/shared/api/types";
import { OpenIcon } from "@/shared/ui/icons";

const DOWNLOADS = [
  { format: "html", label: "HTML" },
  { format: "md", label: "Markdown" },
  { format: "csv", label: "CSV: the runs" },
  { format: "json", label: "JSON: the analysis" },
] as const;

/** Opens a report of the experiment, or downloads it. */
export function ReportMenu({ experiment: { id } }: { experiment: Experiment }) {
  const address = (format: string) =>
    `/api/v1/experiments/${encodeURIComponent(id)}/report?format=${format}`;
  return (
    <Menu position="bottom-end" width={200}>
      <Menu.Target>
        <Button size="xs" variant="default" rightSection={<OpenIcon />}>
          Report
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item component="a" href={address("html")} target="_blank" rel="noreferrer">
          Open
        </Menu.Item>
        <Menu.Divider />
        <Menu.Label>Download</Menu.Label>
        {DOWNLOADS.map(({ format, label }) => (
          <Menu.Item
            key={format}
            component="a"
            href={address(format)}
            download={`experiment-${id}.${format}`}
          >
            {label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
