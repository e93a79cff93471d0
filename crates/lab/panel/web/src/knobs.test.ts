import assert from "node:assert/strict";
import { test } from "node:test";
import { POSITIONS, countPoints, defaultValues, movedTo, parseNumber, positionOf, presetValues, rangeOf, settingsOf, valueAt, valuesOf, withValues } from "./knobs";
import type { ChoiceKnob, FileKnob, NumberKnob, Template } from "./types";

const loss: NumberKnob = { kind: "number", name: "loss", label: "Loss", group: "where", unit: "", min: 0, max: 0.5, default: [0], suggested: [0, 0.0001, 0.01] };
const delay: NumberKnob = { ...loss, name: "delay_ms", label: "Delay", unit: "ms", max: 100, default: [55, 60], suggested: [1] };
const transport: ChoiceKnob = { kind: "choice", name: "transport", label: "Transport", group: "how", multiple: true, options: [{ name: "auto", label: "auto" }, { name: "tcp", label: "TCP" }], default: ["auto", "tcp"] };
const file: FileKnob = { kind: "file", name: "circuit_file", label: "Circuit", group: "what", accept: ".txt", max_bytes: 100 };
const template: Template = { name: "t", title: "", about: "", knobs: [transport, loss, delay, file] };

test("a run has one value of each knob that it does not compare", () => {
  assert.deepEqual(defaultValues(template, false), { transport: ["auto", "tcp"], loss: [0], delay_ms: [55] });
  assert.deepEqual(defaultValues(template, true).delay_ms, [55, 60]);
  assert.equal(countPoints(defaultValues(template, true)), 4);
});

test("ranges include their end despite rounding", () => {
  assert.deepEqual(rangeOf(0, 0.3, 0.1, false), [0, 0.1, 0.2, 0.3]);
  assert.deepEqual(rangeOf(1, 1000, 10, true), [1, 10, 100, 1000]);
  assert.deepEqual(rangeOf(0, 10, 2, true), []);
  assert.deepEqual(rangeOf(5, 1, 1, false), []);
  assert.deepEqual(rangeOf(0, 1, 0, false), []);
  assert.equal(rangeOf(0, 1e9, 1, false).length, 65);
});

test("values are in order and each is there once", () => {
  assert.deepEqual(withValues([10, 1], [5, 1]), [1, 5, 10]);
});

test("numbers outside the range are refused", () => {
  assert.equal(parseNumber("0,01", loss), 0.01);
  assert.equal(parseNumber("0.6", loss), null);
  assert.equal(parseNumber("", loss), null);
  assert.equal(parseNumber("x", loss), null);
});

test("a knob of whole numbers has no others", () => {
  const members = { ...delay, min: 3, max: 200, whole: true };
  assert.equal(parseNumber("7.5", members), null);
  assert.equal(parseNumber("7", members), 7);
  assert.ok(Number.isInteger(valueAt(members, 17)));
});

test("a slider reaches both ends and keeps its value", () => {
  for (const knob of [loss, delay]) {
    assert.equal(valueAt(knob, 0), knob.min);
    assert.equal(valueAt(knob, POSITIONS), knob.max);
    for (const value of [0, 0.01, 0.1, 0.5]) {
      const back = valueAt(knob, positionOf(knob, value));
      assert.ok(Math.abs(back - value) <= knob.max / 1000 || Math.abs(back / value - 1) < 0.03, `${knob.name} ${value} ${back}`);
    }
  }
  // A wide range is logarithmic: half of the slider is for small values.
  assert.ok(valueAt(loss, 500) < 0.01);
});

test("each arrow key at a slider changes the value", () => {
  const wide = { ...delay, max: 1000, suggested: [0.25, 150] };
  const members = { ...delay, min: 4, max: 13, whole: true };
  for (const knob of [loss, delay, wide, members]) {
    for (const direction of [1, -1]) {
      let value = direction > 0 ? knob.min : knob.max;
      const end = direction > 0 ? knob.max : knob.min;
      for (let keys = 0; value !== end; keys += 1) {
        const next = movedTo(knob, value, positionOf(knob, value) + direction);
        assert.ok((next - value) * direction > 0 && keys <= POSITIONS, `${knob.name} ${value} ${next}`);
        value = next;
      }
    }
  }
});

test("a network preset sets only knobs that the template has, to values that they can have", () => {
  const lan = { name: "LAN", about: "", values: { delay_ms: 0.25, loss: 0, rate_mbit: 10_000 } };
  assert.deepEqual(presetValues(lan, template), { delay_ms: [0.25], loss: [0] });
  assert.deepEqual(presetValues({ ...lan, values: { delay_ms: 101, rate_mbit: 1, transport: 1 } }, template), null);
});

test("files of a request are no values, and are named in the settings", () => {
  const request = { transport: ["tcp"], circuit_file: [{ name: "adder.txt", bytes: 10, sha256: "" }] };
  assert.deepEqual(valuesOf(request), { transport: ["tcp"] });
  assert.equal(settingsOf(template, request, true), "TCP · adder.txt");
});

test("settings are a few words", () => {
  assert.equal(settingsOf(template, { transport: ["tcp"], loss: [0, 1, 2, 3], delay_ms: [5] }, true), "TCP · loss: 4 values · delay: 5 ms");
  assert.equal(settingsOf(template, { transport: ["tcp"], loss: [0], delay_ms: [5] }, false), "TCP · delay: 5 ms");
});
