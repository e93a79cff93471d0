import assert from "node:assert/strict";
import { test } from "node:test";
import { earlierValues, initialFiles, missingFile, parseSeed, readFile, requestOf } from "./files";
import type { FileKnob, Template } from "./types";

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
