// Files that a person gives to a run.
import { count } from "./format";
import { isFileKnob, valuesOf } from "./knobs";
import type { FileKnob, KnobValues, RequestValue, RunRequest, SentFile, Template } from "./types";

export interface ChosenFile extends SentFile {
  bytes: number;
}

/** A file, the example of the template, or nothing yet. */
export type FileChoice = ChosenFile | "example" | null;

/** The choice for each knob that has a file. */
export type FileChoices = Record<string, FileChoice>;

/** The settings of a run, as a person makes them. */
export interface RunSettings {
  values: KnobValues;
  files: FileChoices;
  repetitions: number;
  /** Absent for the usual one. */
  seed?: number | undefined;
}

/**
 * The initial choices. The text of a file of an earlier run is not known any more, so the person
 * chooses again.
 */
export function initialFiles(template: Template, earlier: Record<string, RequestValue[]> | null): FileChoices {
  const choice = (knob: FileKnob) => (knob.has_example && !earlier?.[knob.name]?.length ? "example" : null);
  return Object.fromEntries(template.knobs.filter(isFileKnob).map((knob) => [knob.name, choice(knob)]));
}

/** The first knob that still needs a file. */
export function missingFile(template: Template, files: FileChoices): FileKnob | undefined {
  return template.knobs.filter(isFileKnob).find((knob) => !files[knob.name]);
}

/**
 * Reads a file.
 *
 * Throws an error that a person understands if it is too large, or no text.
 */
export async function readFile(file: File, knob: FileKnob): Promise<ChosenFile> {
  if (file.size > knob.max_bytes) {
    throw new Error(`${file.name} has ${count(file.size)} bytes. At most ${count(knob.max_bytes)} are possible.`);
  }
  if (file.size === 0) throw new Error(`${file.name} is empty.`);
  let content: ArrayBuffer;
  try {
    content = await file.arrayBuffer();
  } catch {
    throw new Error(`The browser cannot read ${file.name}. Choose it again.`);
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content);
    return { name: file.name, text, bytes: file.size };
  } catch {
    throw new Error(`${file.name} is not a text file in UTF-8.`);
  }
}

/** The request for a run with these settings. An example is not sent, because the server has it. */
export function requestOf(template: Template, { values, files, repetitions, seed }: RunSettings): RunRequest {
  const all: Record<string, RequestValue[]> = { ...values };
  for (const [knob, file] of Object.entries(files)) {
    if (file && file !== "example") all[knob] = [{ name: file.name, text: file.text }];
  }
  return { template: template.name, values: all, repetitions, ...(seed !== undefined && { seed }) };
}

/** The values of an earlier run for the knobs that the template still has. */
export function earlierValues(defaults: KnobValues, earlier: Record<string, RequestValue[]> | null): KnobValues {
  const known = Object.entries(valuesOf(earlier ?? {})).filter(([name]) => name in defaults);
  return { ...defaults, ...Object.fromEntries(known) };
}

/** The greatest seed: all whole numbers up to it are exact in a browser. */
export const MAX_SEED = Number.MAX_SAFE_INTEGER;

/** The seed that a person typed: undefined for the usual one, null if it is none. */
export function parseSeed(text: string): number | undefined | null {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  return /^\d+$/.test(trimmed) && Number(trimmed) <= MAX_SEED ? Number(trimmed) : null;
}
