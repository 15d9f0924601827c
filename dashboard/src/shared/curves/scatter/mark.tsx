import { isFilled, OUTLINE_WIDTH, OUTLINES, type Shape } from "@/shared/curves/chart/shapes";

interface Props {
  shape: Shape;
  color: string;
}

/** A point of a chart, for a legend. */
export function Mark({ shape, color }: Props) {
  return (
    <svg width={12} height={12} aria-hidden="true" style={{ flex: "none" }}>
      <path
        d={`M6 6${OUTLINES[shape]}`}
        stroke={color}
        strokeWidth={OUTLINE_WIDTH}
        fill={isFilled(shape) ? color : "none"}
      />
    </svg>
  );
}
