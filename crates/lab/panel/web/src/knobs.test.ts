import assert from "node:assert/strict";
import { test } from "node:test";
import { POSITIONS, countPoints, defaultValues, parseNumber, positionOf, rangeOf, settingsOf, valueAt, withValues } from "./knobs";
import type { ChoiceKnob, NumberKnob, Template } from "./types";

const loss: NumberKnob = { kind: "number", name: "loss", label: "Loss", group: "where", unit: "", min: 0, max: 0.5, default: [0], suggested: [0, 0.0001, 0.01] };
const delay: NumberKnob = { ...loss, name: "delay_ms", label: "Delay", unit: "ms", max: 100, default: [55, 60], suggested: [1] };
const transport: ChoiceKnob = { kind: "choice", name: "transport", label: "Transport", group: "how", multiple: true, options: [{ name: "auto", label: "auto" }, { name: "tcp", label: "TCP" }], default: ["auto", "tcp"] };
const template: Template = { name: "t", title: "", about: "", knobs: [transport, loss, delay] };

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

test("settings are a few words", () => {
  assert.equal(settingsOf(template, { transport: ["tcp"], loss: [0, 1, 2, 3], delay_ms: [5] }, true), "TCP · loss: 4 values · delay: 5 ms");
  assert.equal(settingsOf(template, { transport: ["tcp"], loss: [0], delay_ms: [5] }, false), "TCP · delay: 5 ms");
});
