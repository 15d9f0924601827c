import uPlot from "uplot";

/** The shape of a point: groups of points differ in more than their colour. */
export type Shape = "dot" | "ring" | "cross" | "triangle" | "square";

/** SVG paths from the middle of a point, in CSS pixels. */
export const OUTLINES: Record<Shape, string> = {
  dot: "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
  ring: "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
  cross: "m-3.5 -3.5l7 7m0 -7l-7 7",
  triangle: "m0 -4.5l4.5 8h-9z",
  square: "m-3 -3h6v6h-6z",
};

/** Pixels of the line of a shape that is not filled. */
export const OUTLINE_WIDTH = 1.8;

export function isFilled(shape: Shape): boolean {
  return shape !== "ring" && shape !== "cross";
}

/** The points of a series in a shape. */
export function pointsOf(shape: Shape, color: string): uPlot.Series.Points {
  return {
    show: true,
    space: 0,
    size: 7,
    width: OUTLINE_WIDTH,
    stroke: color,
    fill: isFilled(shape) ? color : "transparent",
    // uPlot's own are dots.
    ...(shape === "dot" ? { width: 0 } : { paths: pathsOf(shape) }),
  };
}

function pathsOf(shape: Shape): uPlot.Series.Points.PathBuilder {
  return (plot, index, first, last) => {
    const [xs, ys] = [plot.data[0], plot.data[index] ?? []];
    const [path, outline] = [new Path2D(), new Path2D(OUTLINES[shape])];
    const ratio = uPlot.pxRatio;
    for (let i = first; i <= last; i++) {
      const [x, y] = [xs[i], ys[i]];
      if (x === undefined || y === undefined || y === null) continue;
      const [left, top] = [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)];
      path.addPath(outline, new DOMMatrix([ratio, 0, 0, ratio, left, top]));
    }
    return { stroke: path, fill: path };
  };
}
