// The chart of a sweep as an SVG document of its own.
import { short } from "../format";
import { type AxisScale, type ChartSeries, scaleFor } from "../series";
import type { KnobValue } from "../types";
import { MARK_RADIUS, PREDICTED_RADIUS, dashOf, markPath } from "./marks";

const WIDTH = 720;
const HEIGHT = 440;
const AREA = { left: 78, right: 24, top: 46, bottom: 92 };
const COLOURS = ["#0b6e8a", "#b4521b", "#5a3e99", "#2f7d32", "#a3195b", "#6b5d10"];

interface Labels {
  title: string;
  x: string;
  y: string;
  /** The label of a value on the horizontal axis. */
  tick: (value: KnobValue) => string;
  /** Where the values were measured. */
  origin: string;
  /** What the dashed outlines are, as in "predicted". */
  prediction: string;
}

const escaped = (text: string) =>
  text.replace(/[&<>"]/g, (it) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[it]!);

export function chartSvg(series: ChartSeries, yScale: AxisScale, labels: Labels): string {
  const right = WIDTH - AREA.right;
  const bottom = HEIGHT - AREA.bottom;
  const x = xPlaces(series, AREA.left + 12, right - 12);
  const values = series.lines.flatMap((line) => line.points.flatMap((it) => [it?.value, it?.invalid, it?.predicted].filter((value) => value != null)));
  const y = yAxis(values, yScale, bottom, AREA.top);
  const hasPredictions = series.lines.some((line) => line.points.some((it) => it?.predicted != null));
  const text = (place: string, content: string, more = "") => `<text ${place} ${more}>${escaped(content)}</text>`;
  const grid = y.ticks.map((tick) => {
    const at = y.place(tick).toFixed(1);
    return `<path d="M${AREA.left} ${at}H${right}" stroke="#ddd"/>${text(`x="${AREA.left - 8}" y="${at}"`, short(tick), 'text-anchor="end" dominant-baseline="central"')}`;
  });
  const ticks = series.xs.map((value, i) => text(`x="${x[i]!.toFixed(1)}" y="${bottom + 20}"`, labels.tick(value), 'text-anchor="middle"'));
  const lines = series.lines.map((line, index) => {
    const colour = COLOURS[index % COLOURS.length]!;
    const at = (value: number, i: number) => [x[i]!, y.place(value)] as const;
    const valid = line.points.flatMap((it, i) => (it?.value != null ? [at(it.value, i)] : []));
    const predicted = line.points.flatMap((it, i) => (it?.predicted != null ? [at(it.predicted, i)] : []));
    const invalid = line.points.flatMap((it, i) => (it?.invalid != null ? [at(it.invalid, i)] : []));
    // Names have no order, so that nothing is between them.
    const isConnected = series.xs.every((value) => typeof value === "number");
    const pathOf = (places: (readonly [number, number])[]) => (isConnected ? places.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join("L") : "");
    const [path, predictedPath] = [pathOf(valid), pathOf(predicted)];
    const mark = (fill: string) => ([px, py]: readonly [number, number]) =>
      `<path d="${markPath(index, px, py, MARK_RADIUS)}" fill="${fill}" stroke="${colour}" stroke-width="1.5"/>`;
    const outline = ([px, py]: readonly [number, number]) =>
      `<path d="${markPath(index, px, py, PREDICTED_RADIUS)}" fill="none" stroke="${colour}" stroke-dasharray="3 2"/>`;
    const legendX = AREA.left + (index % 4) * 150;
    const legendY = HEIGHT - 38 + Math.floor(index / 4) * 16;
    return [
      path ? `<path d="M${path}" fill="none" stroke="${colour}" stroke-width="2" stroke-dasharray="${dashOf(index).join(" ")}"/>` : "",
      predictedPath ? `<path d="M${predictedPath}" fill="none" stroke="${colour}" stroke-dasharray="2 4"/>` : "",
      ...predicted.map(outline),
      ...valid.map(mark(colour)),
      ...invalid.map(mark("#fff")),
      mark(colour)([legendX, legendY] as const),
      text(`x="${legendX + 12}" y="${legendY}"`, line.label, 'dominant-baseline="central"'),
    ].join("");
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12" fill="#222">
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
${text(`x="${AREA.left}" y="24"`, labels.title, 'font-size="15" font-weight="600"')}
${hasPredictions ? text(`x="${right}" y="24"`, `dashed outlines: ${labels.prediction}`, 'text-anchor="end"') : ""}
${grid.join("\n")}
<path d="M${AREA.left} ${bottom}H${right}" stroke="#888"/>
${ticks.join("")}
${text(`x="${(AREA.left + right) / 2}" y="${bottom + 38}"`, labels.x, 'text-anchor="middle"')}
${text(`transform="translate(16 ${(AREA.top + bottom) / 2}) rotate(-90)"`, labels.y, 'text-anchor="middle"')}
${lines.join("\n")}
${text(`x="${right}" y="${HEIGHT - 6}"`, labels.origin, 'text-anchor="end" font-size="9" fill="#666"')}
</svg>
`;
}

function xPlaces(series: ChartSeries, from: number, to: number): number[] {
  const scale = scaleFor(series.xs);
  const positions = series.xs.map((value, i) =>
    scale === "even" ? i : scale === "log" ? Math.log(Number(value)) : Number(value),
  );
  const least = Math.min(...positions);
  const span = Math.max(...positions) - least;
  return positions.map((position) => (span > 0 ? from + ((position - least) / span) * (to - from) : (from + to) / 2));
}

function yAxis(values: number[], scale: AxisScale, from: number, to: number) {
  const most = Math.max(...values, 0) || 1;
  if (scale === "log") {
    // 0 has no place on this axis, so that it is drawn at its lower end.
    const positive = values.filter((value) => value > 0);
    const first = positive.length > 0 ? Math.floor(Math.log10(Math.min(...positive))) : 0;
    const last = Math.max(first + 1, Math.ceil(Math.log10(most)));
    const ticks = Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
    return { ticks, place: (value: number) => from + Math.max(0, (Math.log10(value) - first) / (last - first)) * (to - from) };
  }
  const rough = most / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((it) => it >= rough)!;
  const count = Math.ceil(most / step);
  const ticks = Array.from({ length: count + 1 }, (_, i) => i * step);
  return { ticks, place: (value: number) => from + (value / (count * step)) * (to - from) };
}
