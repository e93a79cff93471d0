// Marks of points: each line of a chart has its own shape, so that colour is not needed.

/** The radius of the mark of a measured value. */
export const MARK_RADIUS = 4.5;

/** The radius of the dashed outline of a prediction. */
export const PREDICTED_RADIUS = 7.5;

/** An SVG path of the mark of a line around a place. */
export function markPath(line: number, x: number, y: number, radius: number): string {
  const r = radius;
  const polygon = (points: [number, number][]) =>
    `M${points.map(([dx, dy]) => `${(x + dx * r).toFixed(2)} ${(y + dy * r).toFixed(2)}`).join("L")}Z`;
  switch (line % 6) {
    case 0:
      return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case 1:
      return polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
    case 2:
      return polygon([[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]);
    case 3:
      return polygon([[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]]);
    case 4:
      return polygon([[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]);
    default:
      return polygon([[-1.2, -0.45], [1.2, -0.45], [1.2, 0.45], [-1.2, 0.45]]);
  }
}

/** The dashes of a line; every other line of six is solid. */
export function dashOf(line: number): number[] {
  return [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [14, 4]][line % 6]!;
}
