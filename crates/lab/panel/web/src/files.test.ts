import assert from "node:assert/strict";
import { test } from "node:test";
import { earlierValues, initialFiles, missingFile, parseSeed, readArchive, readFile, readFolder, requestOf, withoutArchives } from "./files";
import { tar } from "./tar";
import type { ArchiveKnob, FileKnob, Template } from "./types";

const knob: FileKnob = { kind: "file", name: "set", label: "Set", group: "what", accept: ".csv", max_bytes: 10, has_example: true };
const template: Template = { name: "sets", title: "", about: "", knobs: [knob, { ...knob, name: "other", has_example: false }] };

test("a file is read as text with its name and size", async () => {
  assert.deepEqual(await readFile(new File(["ä\n"], "a.csv"), knob), { name: "a.csv", text: "ä\n", bytes: 3 });
});

test("a file that is too large, empty or no text is refused with the reason", async () => {
  await assert.rejects(readFile(new File(["12345678901"], "a.csv"), knob), /a.csv has 11 bytes. At most 10 are/);
  await assert.rejects(readFile(new File([], "a.csv"), knob), /empty/);
  await assert.rejects(readFile(new File([new Uint8Array([255, 254])], "a.csv"), knob), /not a text file in UTF-8/);
});

test("a file knob without an example needs a file, and after an earlier run each one does", () => {
  const files = initialFiles(template, null);
  assert.deepEqual(files, { set: "example", other: null });
  assert.equal(missingFile(template, files)?.name, "other");
  const earlier = { set: [{ name: "a.csv", bytes: 3, sha256: "" }] };
  assert.deepEqual(initialFiles(template, earlier), { set: null, other: null });
  assert.equal(missingFile(template, { set: "example", other: { name: "b", text: "", bytes: 0 } }), undefined);
});

test("a request has the texts of files, nothing of an example, and the seed if there is one", () => {
  const files = { set: "example" as const, other: { name: "b.csv", text: "1", bytes: 1 } };
  const settings = { values: { loss: [0] }, files, repetitions: 2 };
  assert.deepEqual(requestOf(template, settings), { template: "sets", values: { loss: [0], other: [{ name: "b.csv", text: "1" }] }, repetitions: 2 });
  assert.deepEqual(requestOf(template, { ...settings, files: {}, seed: 0 }), { template: "sets", values: { loss: [0] }, repetitions: 2, seed: 0 });
});

test("values of an earlier run are taken for knobs that still exist", () => {
  assert.deepEqual(earlierValues({ loss: [0], rate: [1] }, { loss: [0.5], gone: [1], set: [{ name: "a", bytes: 1, sha256: "" }] }), { loss: [0.5], rate: [1] });
});

test("a seed is a whole number, or the usual one if nothing is typed", () => {
  assert.equal(parseSeed(" 42 "), 42);
  assert.equal(parseSeed(""), undefined);
  for (const text of ["-1", "1.5", "x", "99999999999999999"]) assert.equal(parseSeed(text), null);
});

const archiveKnob: ArchiveKnob = { kind: "archive", name: "folder", label: "Folder", group: "what", accept: ".tar", max_bytes: 4096, replaces: ["set", "other"] };
const withArchive: Template = { ...template, knobs: [archiveKnob, ...template.knobs] };

/** A file as a browser gives it for a folder. */
function inFolder(path: string, content: BlobPart): File {
  return Object.defineProperty(new File([content], path.split("/").at(-1)!), "webkitRelativePath", { value: path });
}

test("a folder is sent as an archive of all its files", async () => {
  const chosen = await readFolder([inFolder("pair/a-server.sh", "exit"), inFolder("pair/data/x", new Uint8Array([0, 255]))], archiveKnob);
  const expected = tar([
    { path: "pair/a-server.sh", content: new TextEncoder().encode("exit") },
    { path: "pair/data/x", content: new Uint8Array([0, 255]) },
  ]);
  assert.deepEqual(chosen, { name: "pair", base64: Buffer.from(expected).toString("base64"), bytes: expected.length });
});

test("a folder or an archive that is too large is refused before it is read", async () => {
  await assert.rejects(readFolder([inFolder("pair/x", new Uint8Array(3000))], archiveKnob), /pair has 4,?608 bytes. At most 4,?096 are/);
  await assert.rejects(readFolder([], archiveKnob), /empty/);
  await assert.rejects(readArchive(new File([new Uint8Array(4097)], "a.tar"), archiveKnob), /a.tar has 4,?097 bytes/);
  assert.deepEqual(await readArchive(new File(["abc"], "a.tar"), archiveKnob), { name: "a.tar", base64: "YWJj", bytes: 3 });
});

test("an archive takes the place of files, and nothing of these is sent", () => {
  const chosen = { name: "a.tar", base64: "YWJj", bytes: 3 };
  const files = { folder: chosen, set: { name: "b.csv", text: "1", bytes: 1 }, other: null };
  assert.equal(missingFile(withArchive, files), undefined);
  const request = requestOf(withArchive, { values: {}, files, repetitions: 1 });
  assert.deepEqual(request, { template: "sets", values: { folder: [{ name: "a.tar", base64: "YWJj" }] }, repetitions: 1 });
  const asked = requestOf(withArchive, { values: {}, files: withoutArchives(withArchive, files), repetitions: 1 });
  assert.deepEqual(asked.values, {});
  // After a run with an archive, the example is not taken for it.
  const earlier = { folder: [{ name: "a.tar", bytes: 3, sha256: "" }] };
  assert.equal(missingFile(withArchive, initialFiles(withArchive, earlier))?.name, "set");
});
