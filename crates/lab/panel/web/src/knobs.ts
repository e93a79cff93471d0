// Values of knobs: lists, ranges, and positions on a slider.
import type {
  ArchiveKnob,
  ChoiceKnob,
  FileKnob,
  Knob,
  KnobValue,
  KnobValues,
  NetworkPreset,
  NumberKnob,
  RequestValue,
  SentArchive,
  SentFile,
  StoredFile,
  Template,
} from "./types";

/** The maximum number of values of one knob, as the server allows. */
export const MAX_VALUES = 64;

/** The initial values. Without `several`, at most one for a knob that a run does not compare. */
export function defaultValues(template: Template, several: boolean): KnobValues {
  const initial = (knob: ChoiceKnob | NumberKnob): KnobValue[] =>
    several || comparesSeveral(knob) ? [...knob.default] : knob.default.slice(0, 1);
  return Object.fromEntries(template.knobs.filter(hasValues).map((knob) => [knob.name, initial(knob)]));
}

/** Whether it has values, and no file. */
export function hasValues(knob: Knob): knob is ChoiceKnob | NumberKnob {
  return knob.kind === "choice" || knob.kind === "number";
}

export function isFileKnob(knob: Knob): knob is FileKnob {
  return knob.kind === "file";
}

export function isArchiveKnob(knob: Knob): knob is ArchiveKnob {
  return knob.kind === "archive";
}

export function isFile(value: RequestValue): value is SentFile | SentArchive | StoredFile {
  return typeof value === "object";
}

/** The values of a request that are no files. */
export function valuesOf(request: Record<string, RequestValue[]>): KnobValues {
  const lists = Object.entries(request).map(([name, list]) => [name, list.filter((value): value is KnobValue => !isFile(value))] as const);
  return Object.fromEntries(lists.filter(([, list]) => list.length > 0));
}

/**
 * The values of a network for the knobs that a template has. Values that a knob cannot have are
 * left out. Null if none is left.
 */
export function presetValues(network: NetworkPreset, template: Template): KnobValues | null {
  const known = Object.entries(network.values).filter(([name, value]) => {
    const knob = template.knobs.find((it) => it.name === name);
    return knob?.kind === "number" && value >= knob.min && value <= knob.max;
  });
  return known.length > 0 ? Object.fromEntries(known.map(([name, value]) => [name, [value]])) : null;
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
export function settingsOf(template: Template | undefined, values: Record<string, RequestValue[]>, isFull: boolean): string {
  const words = template?.knobs.flatMap((knob) => {
    const own = values[knob.name] ?? [];
    if (own.length === 0) return [];
    const list = own.length > 3 ? `${own.length} values` : own.map((value) => (isFile(value) ? value.name : labelOf(knob, value))).join(", ");
    if (knob.kind !== "number") return [list];
    if (!isFull && own.join() === knob.default.join()) return [];
    return [`${inSentence(knob.label)}: ${list} ${own.length > 3 ? "" : knob.unit}`.trim()];
  });
  return words?.join(" · ") ?? "";
}

/** A label within a line: with a small letter, unless it is an abbreviation. */
function inSentence(label: string): string {
  return /^[A-Z][A-Z0-9]/.test(label) ? label : label.charAt(0).toLowerCase() + label.slice(1);
}

/** What the values of a knob are, as in "numbers from 0 to 1 s". */
export function rangeText(knob: NumberKnob, one: boolean): string {
  const kind = one ? `a ${knob.whole ? "whole " : ""}number` : `${knob.whole ? "whole " : ""}numbers`;
  return `${kind} from ${knob.min} to ${knob.max} ${knob.unit}`.trim();
}

/** A number that a person typed; null if it is none or outside the range. */
export function parseNumber(text: string, knob: NumberKnob): number | null {
  const value = Number(text.trim().replace(",", "."));
  const isPossible = value >= knob.min && value <= knob.max && (!knob.whole || Number.isInteger(value));
  return text.trim() !== "" && isPossible ? value : null;
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
  const value = exactValueAt(knob, position);
  return knob.whole ? Math.round(value) : value;
}

/** The value after a slider was moved to a position: another one, even if the step is a small one. */
export function movedTo(knob: NumberKnob, value: number, position: number): number {
  const direction = Math.sign(position - positionOf(knob, value));
  while (direction !== 0 && position > 0 && position < POSITIONS && (valueAt(knob, position) - value) * direction <= 0) position += direction;
  return valueAt(knob, position);
}

function exactValueAt(knob: NumberKnob, position: number): number {
  const { min: least, max: most } = knob;
  const from = leastPositive(knob);
  if (position <= 0) return least;
  if (position >= POSITIONS) return most;
  if (from === null) return Number((least + ((most - least) * position) / POSITIONS).toPrecision(2));
  const first = least > 0 ? 0 : 1;
  const value = from * (most / from) ** ((position - first) / (POSITIONS - first));
  return Math.min(most, Math.max(from, Number(value.toPrecision(2))));
}
