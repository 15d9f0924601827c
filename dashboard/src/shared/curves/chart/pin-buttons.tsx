import { IconButton } from "@/shared/ui/icon-button";
import { PinIcon, UpIcon } from "@/shared/ui/icons";

export interface Pin {
  /** Whether the chart is among those that come first. */
  pinned: boolean;
  onPin: () => void;
  /** Moves it before the previous pinned chart; left out for the first. */
  onForward: (() => void) | undefined;
}

/** Buttons that keep a chart at the top of its page. */
export function PinButtons({ title, pin }: { title: string; pin: Pin }) {
  const { pinned, onPin, onForward } = pin;
  return (
    <>
      {onForward ? (
        <IconButton
          label="Move forward"
          name={`Move ${title} forward`}
          size="xs"
          onClick={onForward}
        >
          <UpIcon />
        </IconButton>
      ) : null}
      <IconButton
        label={pinned ? "Unpin" : "Pin to the top, for all jobs"}
        name={`Pin ${title}`}
        aria-pressed={pinned}
        size="xs"
        {...(pinned ? { variant: "light", color: "blue" } : {})}
        onClick={onPin}
      >
        <PinIcon />
      </IconButton>
    </>
  );
}
