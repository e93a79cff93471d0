// Files that a person gives to a run.
import { count } from "./format";
import { isArchiveKnob, isFileKnob, valuesOf } from "./knobs";
import { type TarFile, tar, tarLength } from "./tar";
import type { ArchiveKnob, FileKnob, KnobValues, RequestValue, RunRequest, SentArchive, SentFile, Template } from "./types";

export type ChosenFile = (SentFile | SentArchive) & { bytes: number };

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
  const hadFile = (name: string) => (earlier?.[name]?.length ?? 0) > 0;
  // The example is not what an earlier run with an archive had.
  const hadArchive = (name: string) => template.knobs.filter(isArchiveKnob).some((knob) => hadFile(knob.name) && knob.replaces.includes(name));
  const choice = ({ name, has_example }: FileKnob) => (has_example && !hadFile(name) && !hadArchive(name) ? "example" : null);
  return Object.fromEntries(template.knobs.filter(isFileKnob).map((knob) => [knob.name, choice(knob)]));
}

/** The names of the knobs whose place a chosen archive takes. */
export function replacedKnobs(template: Template, files: FileChoices): string[] {
  return template.knobs.filter(isArchiveKnob).filter((knob) => files[knob.name]).flatMap((knob) => knob.replaces);
}

/** The first knob that still needs a file. */
export function missingFile(template: Template, files: FileChoices): FileKnob | undefined {
  const replaced = replacedKnobs(template, files);
  return template.knobs.filter(isFileKnob).find((knob) => !files[knob.name] && !replaced.includes(knob.name));
}

/**
 * Reads a file.
 *
 * Throws an error that a person understands if it is too large, or no text.
 */
export async function readFile(file: File, knob: FileKnob): Promise<ChosenFile> {
  checkLength(file.name, file.size, knob.max_bytes);
  if (file.size === 0) throw new Error(`${file.name} is empty.`);
  const content = await contentOf(file);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content);
    return { name: file.name, text, bytes: file.size };
  } catch {
    throw new Error(`${file.name} is not a text file in UTF-8.`);
  }
}

/** Reads an archive. Throws an error that a person understands if it is too large. */
export async function readArchive(file: File, knob: ArchiveKnob): Promise<ChosenFile> {
  checkLength(file.name, file.size, knob.max_bytes);
  const content = await contentOf(file);
  return { name: file.name, base64: base64(content), bytes: content.length };
}

/**
 * Reads all files of a folder, as an archive.
 *
 * Throws an error that a person understands if it is empty, too large, or has too long paths.
 */
export async function readFolder(files: File[], knob: ArchiveKnob): Promise<ChosenFile> {
  const path = (file: File) => file.webkitRelativePath || file.name;
  if (!files[0]) throw new Error("The folder is empty.");
  const [name] = path(files[0]).split("/") as [string];
  checkLength(name, tarLength(files.map((file) => file.size)), knob.max_bytes);
  const read: TarFile[] = [];
  for (const file of files) read.push({ path: path(file), content: await contentOf(file) });
  const archive = tar(read);
  return { name, base64: base64(archive), bytes: archive.length };
}

function checkLength(name: string, length: number, most: number) {
  if (length > most) throw new Error(`${name} has ${count(length)} bytes. At most ${count(most)} are possible.`);
}

async function contentOf(file: File): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new Error(`The browser cannot read ${file.name}. Choose it again.`);
  }
}

/** How many bytes are converted at a time: a call has so many arguments. */
const PIECE = 0x8000;

function base64(content: Uint8Array): string {
  let text = "";
  for (let place = 0; place < content.length; place += PIECE) {
    text += String.fromCharCode(...content.subarray(place, place + PIECE));
  }
  return btoa(text);
}

/** The request for a run with these settings. An example is not sent, because the server has it. */
export function requestOf(template: Template, { values, files, repetitions, seed }: RunSettings): RunRequest {
  const all: Record<string, RequestValue[]> = { ...values };
  const replaced = replacedKnobs(template, files);
  for (const [knob, file] of Object.entries(files)) {
    if (!file || file === "example" || replaced.includes(knob)) continue;
    const { name } = file;
    all[knob] = ["text" in file ? { name, text: file.text } : { name, base64: file.base64 }];
  }
  return { template: template.name, values: all, repetitions, ...(seed !== undefined && { seed }) };
}

/**
 * The files of a request that only asks what to expect, which does not depend on an archive: it is
 * not sent for each change.
 */
export function withoutArchives(template: Template, files: FileChoices): FileChoices {
  const archives = template.knobs.filter(isArchiveKnob).map((knob) => [knob.name, null] as const);
  const replaced = replacedKnobs(template, files).map((name) => [name, "example"] as const);
  return { ...files, ...Object.fromEntries([...archives, ...replaced]) };
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
