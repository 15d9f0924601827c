import { slug } from "@/shared/save-file";
import { IconButton } from "@/shared/ui/icon-button";
import { ImageIcon } from "@/shared/ui/icons";
import { notifyProblem } from "@/shared/ui/notify";
import { type Key, savePng } from "./image";

interface Props {
  title: string;
  keys?: readonly Key[];
  /** Name of the horizontal axis. */
  axis?: string;
  /** Name of the file without its ending. */
  file?: string;
}

/** Downloads the figure that it is in as PNG. */
export function PngButton({ title, keys = [], axis = "", file = slug(title) }: Props) {
  return (
    <IconButton
      label="Download as PNG"
      name={`Download ${title} as PNG`}
      size="xs"
      onClick={({ currentTarget }) => {
        const frame = currentTarget.closest("figure");
        if (frame === null) return;
        savePng(`${file}.png`, title, keys, frame, axis).catch((error: unknown) =>
          notifyProblem(`Could not save ${title} as an image`, error),
        );
      }}
    >
      <ImageIcon />
    </IconButton>
  );
}
