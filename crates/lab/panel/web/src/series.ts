// Makes the lines of a chart from trials.
import { valuesOf } from "./knobs";
import type { KnobValue, PlotDefinition, Point, RunRequest, TrialRecord } from "./types";

export interface ChartPoint {
  /** The median of the valid trials. */
  value: number | null;
  /** The median of the invalid ones, if no trial is valid. */
  invalid: number | null;
  /** Why trials are invalid. */
  reasons: string[];
  valid: number;
  of: number;
  predicted: number | null;
}

export interface ChartLine {
  label: string;
  /** One for each x; null without a trial. */
  points: (ChartPoint | null)[];
}

export interface ChartSeries {
  xs: KnobValue[];
  lines: ChartLine[];
}

/** What a chart shows. */
export interface ChartChoice {
  x: string;
  y: string;
  /** The key whose values are lines. */
  lines: string | null;
  /** The values of all other keys that vary. */
  fixed: Point;
}

/** The keys that have more than one value, with the values in order. */
export function variedKeys(trials: { point: Point }[]): Map<string, KnobValue[]> {
  const keys = new Map<string, Set<KnobValue>>();
  for (const { point } of trials) {
    for (const [key, value] of Object.entries(point)) {
      keys.set(key, (keys.get(key) ?? new Set()).add(value));
    }
  }
  const varied = [...keys].filter(([, values]) => values.size > 1);
  return new Map(varied.map(([key, values]) => [key, sorted([...values])]));
}

/** Numbers by size; names stay in the order in which they come. */
function sorted(values: KnobValue[]): KnobValue[] {
  const isNumeric = values.every((value) => typeof value === "number");
  return isNumeric ? values.sort((a, b) => Number(a) - Number(b)) : values;
}

/** The points that a run measures: those of its request, or else those that it has measured. */
export function pointsOf(request: RunRequest, trials: { point: Point }[]): { point: Point }[] {
  if (!("template" in request)) return trials;
  const keys = Object.entries(valuesOf(request.values));
  // Only the values of each key matter for a chart, not the combinations.
  const longest = Math.max(0, ...keys.map(([, values]) => values.length));
  return Array.from({ length: longest }, (_, i) => ({
    point: Object.fromEntries(keys.map(([name, values]) => [name, values[Math.min(i, values.length - 1)]!])),
  }));
}

/** What is shown first: the first graph of the experiment, or else the first key that has numbers. */
export function initialChoice(
  varied: Map<string, KnobValue[]>,
  plots: PlotDefinition[],
  y: string,
): ChartChoice | null {
  const plot = plots.find((it) => varied.has(it.x));
  const keys = [...varied.keys()];
  const isNumeric = (key: string) => typeof varied.get(key)?.[0] === "number";
  const x = plot?.x ?? keys.find(isNumeric) ?? keys[0];
  if (x === undefined) return null;
  const others = keys.filter((key) => key !== x);
  const named = others.find((key) => !isNumeric(key));
  const lines = plot?.lines !== undefined && varied.has(plot.lines) ? plot.lines : named ?? others[0];
  return completed({ x, y: plot?.y ?? y, lines: lines ?? null, fixed: {} }, varied);
}

/** The choice with a value for each key that neither the axis nor the lines show. */
export function completed(choice: ChartChoice, varied: Map<string, KnobValue[]>): ChartChoice {
  const lines = choice.lines === choice.x ? null : choice.lines;
  const rest = [...varied].filter(([key]) => key !== choice.x && key !== lines);
  const fixed = rest.map(([key, values]) => {
    const chosen = choice.fixed[key];
    return [key, chosen !== undefined && values.includes(chosen) ? chosen : values[0]!] as const;
  });
  return { ...choice, lines, fixed: Object.fromEntries(fixed) };
}

/** The lines. */
export function seriesOf(
  trials: TrialRecord[],
  choice: ChartChoice,
  varied: Map<string, KnobValue[]>,
  label: (key: string, value: KnobValue) => string,
): ChartSeries {
  const xs = varied.get(choice.x) ?? [];
  const { lines, fixed } = choice;
  const shown = trials.filter((trial) =>
    Object.entries(fixed).every(([key, value]) => trial.point[key] === value),
  );
  const groups = lines === null ? [null] : varied.get(lines) ?? [];
  return {
    xs,
    lines: groups.map((group) => {
      const own = lines === null ? shown : shown.filter((trial) => trial.point[lines] === group);
      const at = (x: KnobValue) => own.filter((trial) => trial.point[choice.x] === x);
      const points = xs.map((x) => pointOf(at(x), choice.y));
      return { label: group === null ? choice.y : label(lines!, group), points };
    }),
  };
}

/** Summarizes the trials of one point. */
export function pointOf(trials: TrialRecord[], name: string): ChartPoint | null {
  const measured = trials.filter((trial) => name in trial.values);
  if (measured.length === 0) return null;
  const valid = measured.filter((trial) => !trial.invalid);
  const values = (list: TrialRecord[]) => list.map((trial) => trial.values[name]!);
  const predictions = measured.flatMap((trial) => trial.predictions[name] ?? []);
  const invalid = measured.filter((trial) => trial.invalid);
  return {
    value: median(values(valid)),
    invalid: valid.length === 0 ? median(values(measured)) : null,
    reasons: [...new Set(invalid.map(reasonOf))],
    valid: valid.length,
    of: measured.length,
    predicted: median(predictions),
  };
}

/** Why a trial is invalid. */
export function reasonOf(trial: TrialRecord): string {
  if (trial.reason) return trial.reason;
  // An event has no reason.
  if (trial.missed > 0) {
    return `the machine was busy: it lost ${trial.missed} packets that the path would have carried`;
  }
  return `the machine was busy: packets arrived up to ${trial.late_ms.toFixed(1)} ms late`;
}

export function median(values: number[]): number | null {
  if (values.length === 0) return null;
  const ordered = [...values].sort((a, b) => a - b);
  const middle = ordered.length / 2;
  return ordered.length % 2 ? ordered[Math.floor(middle)]! : (ordered[middle - 1]! + ordered[middle]!) / 2;
}

/** Whether values are so far apart that a linear axis hides the small ones. */
export function isSpread(values: number[], factor: number): boolean {
  return values.length > 0 && Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > factor;
}

export type AxisScale = "linear" | "log" | "even";

/** The scale that shows all values of an axis. */
export function scaleFor(values: KnobValue[]): AxisScale {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length < values.length) return "even";
  const positive = numbers.filter((value) => value > 0);
  const isWide = Math.max(...positive) / Math.min(...positive) >= 10;
  if (!isWide) return "linear";
  return positive.length === numbers.length ? "log" : "even";
}
