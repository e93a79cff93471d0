// Values of knobs: lists, ranges, and positions on a slider.
import { type ChoiceKnob, type Knob, type KnobValue, type KnobValues, type NumberKnob, type Template } from "./types";

/** The maximum number of values of one knob, as the server allows. */
export const MAX_VALUES = 64;

/** The initial values. Without `several`, at most one for a knob that a run does not compare. */
export function defaultValues(template: Template, several: boolean): KnobValues {
  const initial = (knob: Knob): KnobValue[] =>
    several || comparesSeveral(knob) ? [...knob.default] : knob.default.slice(0, 1);
  return Object.fromEntries(template.knobs.map((knob) => [knob.name, initial(knob)]));
}

/** Whether a run compares several values of it. */
export function comparesSeveral(knob: Knob): boolean {
  return knob.kind === "choice" && knob.multiple;
}

export function countPoints(values: KnobValues): number {
  return Object.values(values).reduce((product, list) => product * list.length, 1);
}

/** The label of a value. */
export function labelOf(knob: Knob | undefined, value: KnobValue): string {
  const option = knob?.kind === "choice" ? knob.options.find((it) => it.name === value) : undefined;
  return option?.label ?? String(value);
}

/** The settings of a run in a few words; without `isFull`, only those numbers that are not the default. */
export function settingsOf(template: Template | undefined, values: KnobValues, isFull: boolean): string {
  const isShown = (knob: Knob) => isFull || knob.kind === "choice" || values[knob.name]!.join() !== knob.default.join();
  const knobs = template?.knobs.filter((knob) => values[knob.name] && isShown(knob)) ?? [];
  const words = knobs.map((knob) => {
    const own = values[knob.name]!;
    const list = own.length > 3 ? `${own.length} values` : own.map((value) => labelOf(knob, value)).join(", ");
    return knob.kind === "choice" ? list : `${knob.label.toLowerCase()}: ${list} ${own.length > 3 ? "" : knob.unit}`.trim();
  });
  return words.join(" · ");
}

/** A number that a person typed; null if it is none or outside the range. */
export function parseNumber(text: string, knob: NumberKnob): number | null {
  const value = Number(text.trim().replace(",", "."));
  return text.trim() !== "" && value >= knob.min && value <= knob.max ? value : null;
}

/** The values from the first to the last, which are a step or a factor apart. */
export function rangeOf(first: number, last: number, step: number, isFactor: boolean): number[] {
  const grows = isFactor ? step > 1 && first > 0 : step > 0;
  if (!grows || !(last >= first)) return [];
  const values: number[] = [];
  for (let i = 0; i <= MAX_VALUES; i += 1) {
    const value = isFactor ? first * step ** i : first + step * i;
    // The last one belongs to the range despite rounding.
    if (value > last * (1 + 1e-9) + 1e-12) break;
    values.push(Number(value.toPrecision(12)));
  }
  return values;
}

/** The values with some more, each once, in order. */
export function withValues(values: KnobValue[], more: KnobValue[]): KnobValue[] {
  const all = [...new Set([...values, ...more])];
  if (all.every((value) => typeof value === "number")) all.sort((a, b) => a - b);
  return all.slice(0, MAX_VALUES);
}

/** In the order of the knob's options. */
export function inOrder(knob: ChoiceKnob, values: KnobValue[]): KnobValue[] {
  return knob.options.map((option) => option.name).filter((name) => values.includes(name));
}

/** How many positions a slider has. */
export const POSITIONS = 1000;

/** The smallest value beside 0 of a slider with a logarithmic scale; null for a linear scale. */
function leastPositive(knob: NumberKnob): number | null {
  const { min: least, max: most } = knob;
  const positive = knob.suggested.filter((value) => value > 0);
  const from = least > 0 ? least : Math.min(...positive, most) / 10;
  return from > 0 && most / from >= 500 ? from : null;
}

/** The position of a value. A logarithmic scale has 0 at its left end, if the range has it. */
export function positionOf(knob: NumberKnob, value: number): number {
  const { min: least, max: most } = knob;
  const from = leastPositive(knob);
  if (from === null) return Math.round(((value - least) / (most - least)) * POSITIONS);
  const first = least > 0 ? 0 : 1;
  if (value < from) return 0;
  return Math.round(first + (Math.log(value / from) / Math.log(most / from)) * (POSITIONS - first));
}

/** The value at a position, with two significant digits. */
export function valueAt(knob: NumberKnob, position: number): number {
  const { min: least, max: most } = knob;
  const from = leastPositive(knob);
  if (position <= 0) return least;
  if (position >= POSITIONS) return most;
  if (from === null) return Number((least + ((most - least) * position) / POSITIONS).toPrecision(2));
  const first = least > 0 ? 0 : 1;
  const value = from * (most / from) ** ((position - first) / (POSITIONS - first));
  return Math.min(most, Math.max(from, Number(value.toPrecision(2))));
}
