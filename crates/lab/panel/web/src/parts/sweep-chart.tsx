// The chart of a sweep: choose the axis and the lines; invalid points are hollow.
import { useMemo, useState } from "preact/hooks";
import { LineChart } from "../charts/line-chart";
import { chartSvg } from "../charts/svg";
import { quantity } from "../format";
import { predictionWord } from "../predictions";
import { saveFile } from "../save";
import {
  type AxisScale,
  type ChartChoice,
  type ChartSeries,
  completed,
  initialChoice,
  isSpread,
  scaleFor,
  seriesOf,
  variedKeys,
} from "../series";
import type { KnobValue, MeasuredValue, PlotDefinition, Point, TrialRecord } from "../types";
import type { Labels } from "./labels";

interface Props {
  name: string;
  title: string;
  trials: TrialRecord[];
  /** All points that the run will measure, so that the axes are there from the start. */
  points: { point: Point }[];
  values: MeasuredValue[];
  plots: PlotDefinition[];
  labels: Labels;
  /** Where the values were measured, for the saved image. */
  origin: string;
}

export function SweepChart({ name, title, trials, points, values, plots, labels, origin }: Props) {
  const varied = useMemo(() => variedKeys(points), [points]);
  const [chosen, setChosen] = useState<ChartChoice | null>(null);
  const [isLog, setLog] = useState<boolean | null>(null);
  const choice = useMemo(() => {
    const first = chosen ?? initialChoice(varied, plots, values[0]?.name ?? "");
    return first && completed(first, varied);
  }, [chosen, varied, plots, values]);
  const series = useMemo(() => (choice ? seriesOf(trials, choice, varied, labels.value) : null), [trials, choice, varied, labels.value]);
  if (!choice || !series) return null;
  const measured = values.find((value) => value.name === choice.y);
  const unit = measured?.unit ?? "";
  const yScale: AxisScale = (isLog ?? isWide(series)) ? "log" : "linear";
  const tick = (value: KnobValue) => labels.value(choice.x, value);
  const saveSvg = () => {
    const svg = chartSvg(series, yScale, { title, x: labels.key(choice.x), y: unit ? `${choice.y} (${unit})` : choice.y, tick, origin, prediction: predictionWord(measured) });
    saveFile(`${name}.svg`, "image/svg+xml", svg);
  };
  return (
    <>
      <ChartControls {...{ choice, varied, values, labels }} isLog={yScale === "log"} onChoice={setChosen} onLog={setLog}>
        <button type="button" onClick={saveSvg}>Download SVG</button>
      </ChartControls>
      <SeriesChart series={series} tick={tick} description={`${choice.y} by ${labels.key(choice.x)}`} xLabel={labels.key(choice.x)} yLabel={unit ? `${choice.y} (${unit})` : choice.y} unit={unit} yScale={yScale} prediction={predictionWord(measured)} />
      <InvalidPoints series={series} x={labels.key(choice.x)} />
    </>
  );
}

/** Whether a logarithmic axis shows the values better. */
export function isWide(series: ChartSeries): boolean {
  const values = series.lines.flatMap((line) => line.points.flatMap((it) => it?.value ?? it?.invalid ?? []));
  return isSpread(values, 30);
}

interface ControlProps {
  choice: ChartChoice;
  varied: Map<string, KnobValue[]>;
  values: MeasuredValue[];
  labels: Labels;
  isLog: boolean;
  onChoice: (choice: ChartChoice) => void;
  onLog: (isLog: boolean) => void;
  children: preact.ComponentChildren;
}

function ChartControls({ choice, varied, values, labels, isLog, onChoice, onLog, children }: ControlProps) {
  const keys = [...varied.keys()];
  return (
    <div class="toolbar">
      <label>
        Horizontal
        <select value={choice.x} onChange={(event) => onChoice({ ...choice, x: event.currentTarget.value, lines: choice.lines === event.currentTarget.value ? choice.x : choice.lines })}>
          {keys.map((key) => <option key={key} value={key}>{labels.key(key)}</option>)}
        </select>
      </label>
      {keys.length > 1 && (
        <label>
          Lines
          <select value={choice.lines ?? ""} onChange={(event) => onChoice({ ...choice, lines: event.currentTarget.value })}>
            {keys.filter((key) => key !== choice.x).map((key) => <option key={key} value={key}>{labels.key(key)}</option>)}
          </select>
        </label>
      )}
      {Object.entries(choice.fixed).map(([key, value]) => (
        <label key={key}>
          {labels.key(key)}
          <select
            value={String(value)}
            onChange={(event) => onChoice({ ...choice, fixed: { ...choice.fixed, [key]: varied.get(key)![event.currentTarget.selectedIndex]! } })}
          >
            {varied.get(key)!.map((it) => <option key={it} value={String(it)}>{labels.value(key, it)}</option>)}
          </select>
        </label>
      ))}
      {values.length > 1 && (
        <label>
          Vertical
          <select value={choice.y} onChange={(event) => onChoice({ ...choice, y: event.currentTarget.value })}>
            {values.map((value) => <option key={value.name} value={value.name}>{value.name}</option>)}
          </select>
        </label>
      )}
      <label class="check">
        <input type="checkbox" checked={isLog} onChange={(event) => onLog(event.currentTarget.checked)} />
        logarithmic
      </label>
      {children}
    </div>
  );
}

interface SeriesProps {
  series: ChartSeries;
  description: string;
  /** The label of a value on the horizontal axis. */
  tick: (value: KnobValue) => string;
  xLabel: string;
  yLabel: string;
  unit: string;
  yScale: AxisScale;
  /** Whose predictions are drawn. */
  prediction: "paper" | "predicted";
}

export function SeriesChart({ series, description, tick, xLabel, yLabel, unit, yScale, prediction }: SeriesProps) {
  const { xs, lines } = series;
  const scale = scaleFor(xs);
  const isNumeric = xs.every((x) => typeof x === "number");
  const places = useMemo(() => xs.map((x, i) => (scale === "even" ? i : Number(x))), [xs, scale]);
  const drawn = useMemo(
    () =>
      lines.map(({ label, points }) => ({
        label,
        ys: points.map((it) => it?.value ?? null),
        hollow: points.map((it) => it?.invalid ?? null),
        predicted: points.map((it) => it?.predicted ?? null),
      })),
    [lines],
  );
  const hasPredictions = lines.some(({ points }) => points.some((it) => it?.predicted != null));
  return (
    <>
      <LineChart
        description={`${description}; the table below has the values`}
        xs={places}
        lines={drawn}
        xLabel={xLabel}
        yLabel={yLabel}
        xScale={scale === "log" ? "log" : "linear"}
        yScale={yScale === "log" ? "log" : "linear"}
        ticks={scale === "even" ? xs.map(tick) : undefined}
        isConnected={isNumeric}
        hasMarks
        height={360}
        valueAt={(line, index) => {
          const point = lines[line]?.points[index];
          const value = point?.value ?? point?.invalid;
          if (value == null) return null;
          const beside = point!.predicted === null ? [] : [`${prediction} ${quantity(point!.predicted, unit)}`];
          const notes = [...(point!.value === null ? ["invalid"] : []), ...beside];
          return quantity(value, unit) + (notes.length > 0 ? ` (${notes.join(", ")})` : "");
        }}
        titleAt={(index) => [...new Set(lines.flatMap((line) => line.points[index]?.reasons ?? []))].join("; ")}
      />
      {hasPredictions && <p class="hint">Dashed outlines are {prediction === "paper" ? "the values that the paper published" : "predictions"}.</p>}
    </>
  );
}

/** Why points are invalid, as text. */
function InvalidPoints({ series, x }: { series: ChartSeries; x: string }) {
  const found = series.lines.flatMap(({ label, points }) =>
    points.flatMap((point, i) => (point && point.reasons.length > 0 ? [{ label, x: series.xs[i]!, point }] : [])),
  );
  if (found.length === 0) return null;
  return (
    <details class="invalid-points" open={found.length <= 3}>
      <summary>{found.length === 1 ? "1 point has invalid trials" : `${found.length} points have invalid trials`} (hollow if no trial is valid)</summary>
      <ul>
        {found.map((it) => (
          <li key={`${it.label} ${it.x}`}>
            {it.label}, {x} {it.x}: {it.point.of - it.point.valid} of {it.point.of} invalid, {it.point.reasons[0]}
          </li>
        ))}
      </ul>
    </details>
  );
}
