import type { Look } from "./palette";

interface Props {
  look: Look;
  width?: number;
  strokeWidth?: number;
}

/** A short piece of a curve, for a legend. */
export function Swatch({ look: { color, dash }, width = 14, strokeWidth = 3 }: Props) {
  return (
    <svg width={width} height={6} aria-hidden="true" style={{ flex: "none" }}>
      <line
        x2={width}
        y1={3}
        y2={3}
        stroke={color}
        strokeWidth={strokeWidth}
        strokeDasharray={dash?.map((length) => length / 2).join(" ")}
      />
    </svg>
  );
}
