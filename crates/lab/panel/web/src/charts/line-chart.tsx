// Draws lines with uPlot. The data is also in a table beside each chart.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { short } from "../format";
import { colour, seriesColour, useThemeVersion } from "../theme";
import { Legend } from "./legend";
import { MARK_RADIUS, PREDICTED_RADIUS, dashOf, markPath } from "./marks";

type Column = (number | null | undefined)[];

export interface Line {
  label: string;
  ys: Column;
  /** Points that are not connected: invalid ones. */
  hollow?: Column;
  /** A thin line with dashed outlines of marks: what was predicted. */
  predicted?: Column;
}

export interface LineChartProps {
  /** What the chart shows, in one sentence. */
  description: string;
  xs: number[];
  lines: Line[];
  xLabel: string;
  yLabel: string;
  xScale: "linear" | "log";
  yScale: "linear" | "log";
  /** The label of each x, where x is only its place in a list. */
  ticks?: string[] | undefined;
  hasMarks: boolean;
  /** Whether lines connect the points. */
  isConnected?: boolean;
  height?: number;
  /** The value of a line at an x, for a person who points there. */
  valueAt: (line: number, index: number) => string | null;
  /** More about an x, for a person who points there. */
  titleAt?: (index: number) => string;
}

const FONT = "12px system-ui, sans-serif";

export function LineChart(props: LineChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [index, setIndex] = useState<number | null>(null);
  const theme = useThemeVersion();
  const { lines, xs, xScale, yScale, xLabel, yLabel, ticks, hasMarks, isConnected } = props;
  const labels = lines.map((line) => line.label);

  // What needs a new chart; other changes only replace the data.
  const shape = JSON.stringify([labels, xScale, yScale, xLabel, yLabel, ticks, hasMarks, isConnected, theme]);
  useEffect(() => {
    const element = place.current!;
    const size = { width: element.clientWidth, height: latest.current.height ?? 300 };
    const made = new uPlot({ ...options(latest, setIndex), ...size }, columns(latest.current), element);
    chart.current = made;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height: size.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [shape]);
  useEffect(() => chart.current?.setData(columns(props)), [xs, lines]);

  const values = index === null ? null : lines.map((_, line) => props.valueAt(line, index));
  const note = index === null ? "" : props.titleAt?.(index) ?? "";
  return (
    <figure class="chart">
      <div ref={place} class="chart-place" role="img" aria-label={props.description} title={note} />
      <Legend labels={labels} values={values} hasMarks={hasMarks} />
    </figure>
  );
}

/** The columns of uPlot: x, and three for each line. */
function columns({ xs, lines }: LineChartProps): uPlot.AlignedData {
  const empty: Column = xs.map(() => null);
  const all = lines.flatMap((line) => [line.ys, line.hollow ?? empty, line.predicted ?? empty]);
  return [xs, ...all] as uPlot.AlignedData;
}

function options(latest: { current: LineChartProps }, onPoint: (index: number | null) => void): Omit<uPlot.Options, "width" | "height"> {
  const { lines, xScale, yScale, xLabel, yLabel, ticks, hasMarks, isConnected = true } = latest.current;
  const noPaths = { paths: () => null };
  const axis: uPlot.Axis = {
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("line"), width: 1 },
    ticks: { show: false },
    font: FONT,
    labelFont: FONT,
    labelGap: 2,
    values: (_, values) => values.map((value) => (value == null ? "" : short(value))),
  };
  const series = lines.flatMap((line, i): uPlot.Series[] => [
    { label: line.label, stroke: () => seriesColour(i), width: 2, dash: dashOf(i), spanGaps: true, points: { show: false }, ...(!isConnected && noPaths) },
    { stroke: "transparent", points: { show: false }, ...noPaths },
    { stroke: () => seriesColour(i), width: 1, dash: [2, 4], spanGaps: true, points: { show: false }, ...(!isConnected && noPaths) },
  ]);
  return {
    legend: { show: false },
    padding: [12, 12, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
    scales: {
      x: {
        time: false,
        distr: xScale === "log" ? 3 : 1,
        ...(xScale === "linear" && { range: (_: uPlot, least: number, most: number): uPlot.Range.MinMax => xRange(least, most, hasMarks) }),
      },
      y: {
        distr: yScale === "log" ? 3 : 1,
        ...(yScale === "linear" && { range: (_: uPlot, _least: number, most: number): uPlot.Range.MinMax => [0, most > 0 ? most * 1.08 : 1] }),
      },
    },
    axes: [
      {
        ...axis,
        label: xLabel,
        size: 26,
        labelSize: 22,
        ...(ticks && {
          splits: () => ticks.map((_, i) => i),
          values: () => ticks,
        }),
      },
      { ...axis, label: yLabel, size: 54, labelSize: 22 },
    ],
    series: [{}, ...series],
    hooks: {
      setCursor: [(chart) => onPoint(chart.cursor.left! >= 0 ? chart.cursor.idx ?? null : null)],
      draw: hasMarks ? [drawMarks] : [],
    },
  };
}

/** Room at both ends for marks. */
function xRange(least: number, most: number, hasMarks: boolean): [number, number] {
  const room = hasMarks ? (most - least) * 0.04 || Math.abs(most) * 0.1 || 0.5 : 0;
  return [least - room, Math.max(most + room, least + 1e-9)];
}

/**
 * Filled marks for points of lines, hollow ones for points that are not connected, and larger dashed
 * outlines for predictions, which stay visible around a mark at the same place.
 */
function drawMarks(chart: uPlot): void {
  const { ctx, data } = chart;
  ctx.save();
  const draw = (line: number, column: number, size: number, fill: string | null) =>
    data[column]!.forEach((y, i) => {
      if (y == null) return;
      const at = (value: number, scale: string) => chart.valToPos(value, scale, true);
      const path = new Path2D(markPath(line, at(data[0][i]!, "x"), at(y, "y"), size * devicePixelRatio));
      ctx.strokeStyle = seriesColour(line);
      if (fill !== null) {
        ctx.fillStyle = fill;
        ctx.fill(path);
      }
      ctx.stroke(path);
    });
  const lines = Array.from({ length: (data.length - 1) / 3 }, (_, line) => line);
  ctx.lineWidth = 1.25 * devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 2 * devicePixelRatio]);
  for (const line of lines) draw(line, 3 * line + 3, PREDICTED_RADIUS, null);
  ctx.lineWidth = 1.75 * devicePixelRatio;
  ctx.setLineDash([]);
  for (const line of lines) {
    draw(line, 3 * line + 1, MARK_RADIUS, seriesColour(line));
    draw(line, 3 * line + 2, MARK_RADIUS, colour("panel"));
  }
  ctx.restore();
}
