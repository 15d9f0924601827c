interface Props {
  /** Values in order; gaps are skipped. */
  values: (number | null)[];
  label: string;
  width?: number;
  height?: number;
}

/** A curve the size of a word. */
export function Sparkline({ values, label, width = 84, height = 22 }: Props) {
  const points = values.filter(
    (value): value is number => value !== null && Number.isFinite(value),
  );
  const low = Math.min(...points);
  const high = Math.max(...points);
  const spread = high - low || 1;
  const path = points
    .map((value, i) => {
      const x = points.length < 2 ? width : (i / (points.length - 1)) * (width - 3) + 1.5;
      const y = height - 2 - ((value - low) / spread) * (height - 4);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    })
    .join(" ");
  return (
    <svg width={width} height={height} role="img" aria-label={label} style={{ display: "block" }}>
      {points.length > 1 ? (
        <polyline
          points={path}
          fill="none"
          stroke="var(--mantine-primary-color-filled)"
          strokeWidth={1.4}
          strokeLinejoin="round"
          opacity={0.85}
        />
      ) : null}
    </svg>
  );
}
