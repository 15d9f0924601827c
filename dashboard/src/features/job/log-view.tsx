import { Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef } from "react";
import { type Segment, showLine } from "@/shared/ansi";
import type { LogLine } from "@/shared/api/types";
import { bytes } from "@/shared/format";
import classes from "./log-view.module.css";

interface Props {
  lines: LogLine[];
  loading: boolean;
  /** Name the rank at the beginning of every line. */
  showRank: boolean;
  following: boolean;
  onFollow: (following: boolean) => void;
}

const ROW = 20;
/** Pixels from the end within which a reader counts as being at it. */
const NEAR_END = 40;

/** Lines as ranks wrote them. Only those on screen exist; all of their text is text nodes. */
export function LogView({ lines, loading, showRank, following, onFollow }: Props) {
  const scroller = useRef<HTMLElement>(null);
  const top = useRef(0);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 20,
    getItemKey: (index) => {
      const line = lines[index];
      return line ? `${line.attempt}/${line.rank}/${line.stream}/${line.offset}` : index;
    },
  });

  useEffect(() => {
    if (following && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [following, lines, virtual]);

  const onScroll = (): void => {
    const element = scroller.current;
    if (element === null) return;
    const wentUp = element.scrollTop < top.current - 2;
    top.current = element.scrollTop;
    const left = element.scrollHeight - element.clientHeight - element.scrollTop;
    if (following && wentUp && left > NEAR_END) onFollow(false);
    if (!following && left <= 1 && !wentUp) onFollow(true);
  };

  return (
    <section
      ref={scroller}
      className={classes.view}
      onScroll={onScroll}
      role="log"
      aria-label="Output of the ranks"
      aria-live="off"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
      tabIndex={0}
    >
      {lines.length === 0 ? (
        <Text size="sm" c="dimmed" p="md">
          {loading ? "Reading…" : "Nothing was written yet."}
        </Text>
      ) : null}
      <div className={classes.all} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index];
          return line ? (
            <div
              key={item.key}
              className={classes.row}
              style={{ transform: `translateY(${item.start}px)`, height: ROW }}
              data-stream={line.stream}
            >
              {showRank ? (
                <span className={classes.rank} data-tone={line.rank % 6}>
                  {line.rank}
                </span>
              ) : null}
              <LineText text={line.text} />
            </div>
          ) : null;
        })}
      </div>
    </section>
  );
}

const LineText = memo(function LineText({ text }: { text: string }) {
  const { segments, cut } = showLine(text);
  return (
    <span className={classes.text}>
      {segments.map((segment, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a line never change
        <span key={i} style={styleOf(segment)}>
          {segment.text}
        </span>
      ))}
      {cut > 0 ? <span className={classes.cut}> … {bytes(cut)} more</span> : null}
    </span>
  );
});

function styleOf(segment: Segment): React.CSSProperties | undefined {
  const style: React.CSSProperties = {};
  if (segment.color) style.color = segment.color;
  if (segment.background) style.background = segment.background;
  if (segment.bold) style.fontWeight = 700;
  if (segment.dim) style.opacity = 0.7;
  if (segment.italic) style.fontStyle = "italic";
  if (segment.underline) style.textDecoration = "underline";
  return Object.keys(style).length > 0 ? style : undefined;
}
