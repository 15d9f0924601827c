import { Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef } from "react";
import { highlighted, type Segment, showLine } from "@/shared/ansi";
import type { LogLine } from "@/shared/api/types";
import { bytes, clock, moment } from "@/shared/format";
import { lineId } from "./line-id";
import type { LogState } from "./log-feed";
import classes from "./log-view.module.css";
import { withoutRank } from "./rank-prefix";
import { useRestOfWindow } from "./rest-of-window";
import { shiftOf, withoutOldBars } from "./shown-lines";

/** A line to scroll to, once per object. */
export interface ScrollTarget {
  line: string;
}

interface Props {
  state: LogState;
  /** Begin every line with its rank. */
  showRank: boolean;
  /** Begin every line with its local time. */
  showTime: boolean;
  /** Break long lines. */
  wrap: boolean;
  following: boolean;
  /** Text to mark in every line; empty: none. */
  find: string;
  /** The id of the highlighted line. */
  chosen: string | undefined;
  target: ScrollTarget | null;
  /** The job has ended: there will be no more lines. */
  ended: boolean;
  onFollow: (following: boolean) => void;
  onChoose: (line: string) => void;
  onEarlier: () => void;
  onLater: () => void;
}

const ROW = 20;
/** Pixels from the end within which a reader counts as being at it. */
const NEAR_END = 40;
/** Pixels from an end of what is loaded at which more is loaded. */
const NEAR_EDGE = 2000;
/** Pixels of the bar below the lines and of the page's margin. */
const BELOW = 60;
const MIN_HEIGHT = 240;

/** Log lines, virtualized. Output of ranks is untrusted: it only ever becomes text nodes. */
export function LogView(props: Props) {
  const { state, following, chosen, target, onFollow, onEarlier, onLater } = props;
  const lines = useMemo(() => withoutOldBars(state.lines, chosen), [state.lines, chosen]);
  const scroller = useRef<HTMLElement>(null);
  const all = useRef<HTMLDivElement>(null);
  useRestOfWindow(scroller, { below: BELOW, least: MIN_HEIGHT });
  const top = useRef(0);
  /** The reader scrolled, not the page: only a reader who reaches the end starts to follow. */
  const byReader = useRef(false);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    // What was measured stays that of its line when others are added above.
    getItemKey: useCallback((index: number) => idAt(lines, index), [lines]),
    overscan: 20,
  });

  // Keep the visible lines in place when lines are added or dropped above them.
  const before = useRef(lines);
  useLayoutEffect(() => {
    const shift = shiftOf(before.current, lines);
    before.current = lines;
    const element = scroller.current;
    if (shift === 0 || element === null || following) return;
    element.scrollTop += shift * ROW;
    top.current = element.scrollTop;
  }, [lines, following]);

  useEffect(() => {
    const element = scroller.current;
    if (!following || lines.length === 0 || element === null) return;
    byReader.current = false;
    element.scrollTop = element.scrollHeight;
  }, [following, lines]);

  // Stay at the end when the window is resized, or wrapped lines are measured.
  useEffect(() => {
    const element = scroller.current;
    if (!following || element === null) return;
    const observer = new ResizeObserver(() => {
      byReader.current = false;
      element.scrollTop = element.scrollHeight;
    });
    observer.observe(element);
    if (all.current) observer.observe(all.current);
    return () => observer.disconnect();
  }, [following]);

  // Heights were measured with the other setting.
  // biome-ignore lint/correctness/useExhaustiveDependencies: of the setting alone
  useEffect(() => virtual.measure(), [props.wrap]);

  // Scroll as soon as the line is loaded, once; then the reader scrolls freely.
  const shown = useRef<ScrollTarget>(null);
  useEffect(() => {
    if (target === null || shown.current === target) return;
    const at = lines.findIndex((line) => lineId(line) === target.line);
    if (at < 0) return;
    shown.current = target;
    byReader.current = false;
    virtual.scrollToIndex(at, { align: "center" });
  }, [target, lines, virtual]);

  // At the top there are no scroll events: read on as long as the top is in sight.
  useEffect(() => {
    const element = scroller.current;
    if (element === null || following || lines.length === 0 || state.atStart) return;
    if (element.scrollTop < NEAR_EDGE) onEarlier();
  }, [following, lines, state.atStart, onEarlier]);

  const onScroll = (): void => {
    const element = scroller.current;
    if (element === null) return;
    const wentUp = element.scrollTop < top.current - 2;
    top.current = element.scrollTop;
    const left = element.scrollHeight - element.clientHeight - element.scrollTop;
    if (following && wentUp && left > NEAR_END) onFollow(false);
    if (!following && byReader.current && left <= 1 && !wentUp && state.atEnd) onFollow(true);
    if (!state.atStart && element.scrollTop < NEAR_EDGE) onEarlier();
    if (!state.atEnd && left < NEAR_EDGE) onLater();
  };

  const onHand = (): void => {
    byReader.current = true;
  };

  return (
    <section
      ref={scroller}
      className={`app-card ${classes.view}`}
      onScroll={onScroll}
      onWheel={onHand}
      onTouchMove={onHand}
      onPointerDown={onHand}
      onKeyDown={onHand}
      data-wrap={props.wrap || undefined}
      role="log"
      aria-label="Log lines"
      aria-live="off"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
      tabIndex={0}
    >
      {lines.length === 0 ? (
        <Text size="sm" c="dimmed" p="md">
          {state.loading ? "Loading…" : `No output${props.ended ? "" : " yet"}.`}
        </Text>
      ) : null}
      <div ref={all} className={classes.all} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index];
          if (line === undefined) return null;
          const id = lineId(line);
          const previous = lines[item.index - 1]?.attempt ?? line.attempt;
          return (
            <div
              key={id}
              className={classes.row}
              style={{ transform: `translateY(${item.start}px)`, height: props.wrap ? "" : ROW }}
              {...(props.wrap ? { ref: virtual.measureElement, "data-index": item.index } : {})}
              data-stream={line.stream}
              data-superseded={line.superseded || undefined}
              data-begins={previous === line.attempt ? undefined : `attempt ${line.attempt}`}
              data-chosen={id === chosen || undefined}
              title={line.superseded ? "Written after its attempt was superseded" : undefined}
            >
              <button
                type="button"
                tabIndex={-1}
                className={classes.link}
                aria-label="Link to this line"
                title={`Link to this line · ${moment(line.time)}`}
                onClick={() => props.onChoose(id)}
              >
                #
              </button>
              {props.showTime ? (
                <time className={classes.time} dateTime={line.time}>
                  {clock(line.time)}
                </time>
              ) : null}
              {props.showRank ? (
                <span className={classes.rank} data-tone={line.rank % 6}>
                  {line.rank}
                </span>
              ) : null}
              <LineText text={props.showRank ? withoutRank(line) : line.text} find={props.find} />
            </div>
          );
        })}
      </div>
    </section>
  );
}

function idAt(lines: readonly LogLine[], index: number): string {
  const line = lines[index];
  return line === undefined ? String(index) : lineId(line);
}

const LineText = memo(function LineText({ text, find }: { text: string; find: string }) {
  const { segments, cut } = showLine(text);
  return (
    <span className={classes.text}>
      {highlighted(segments, find).map((segment, i) => {
        const Tag = segment.marked ? "mark" : "span";
        return (
          <Tag
            // biome-ignore lint/suspicious/noArrayIndexKey: the segments of a line never change
            key={i}
            className={segment.marked ? classes.mark : undefined}
            style={styleOf(segment)}
          >
            {segment.text}
          </Tag>
        );
      })}
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
