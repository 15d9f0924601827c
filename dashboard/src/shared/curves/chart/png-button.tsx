import { IconButton } from "@/shared/ui/icon-button";
import { ImageIcon } from "@/shared/ui/icons";
import { type Key, savePng } from "./image";

interface Props {
  title: string;
  keys?: readonly Key[];
  /** Name of the horizontal axis. */
  axis?: string;
}

/** Downloads the figure that it is in as PNG. */
export function PngButton({ title, keys = [], axis = "" }: Props) {
  return (
    <IconButton
      label="Download as PNG"
      name={`Download ${title} as PNG`}
      size="xs"
      onClick={({ currentTarget }) => {
        const frame = currentTarget.closest("figure");
        const name = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.png`;
        if (frame) void savePng(name, title, keys, frame, axis);
      }}
    >
      <ImageIcon />
    </IconButton>
  );
}
