import assert from "node:assert/strict";
import { test } from "node:test";
import { completed, initialChoice, median, pointOf, scaleFor, seriesOf, variedKeys } from "./series";
import type { Point, TrialRecord } from "./types";

function trial(point: Point, time: number, more: Partial<TrialRecord> = {}): TrialRecord {
  return { repetition: 1, point, values: { time }, predictions: {}, late_ms: 0, missed: 0, attempts: 1, invalid: false, ...more };
}

const trials = [
  trial({ loss: 0.01, transport: "auto", delay_ms: 5 }, 20),
  trial({ loss: 0, transport: "auto", delay_ms: 5 }, 10),
  trial({ loss: 0, transport: "tcp", delay_ms: 5 }, 30, { invalid: true, late_ms: 3.21 }),
  trial({ loss: 0, transport: "auto", delay_ms: 5 }, 12, { repetition: 2 }),
];
const label = (_: string, value: string | number) => String(value);

test("keys with one value do not vary, and numbers are in order", () => {
  assert.deepEqual([...variedKeys(trials)], [["loss", [0, 0.01]], ["transport", ["auto", "tcp"]]]);
});

test("the first chart has a number on its axis and names as lines", () => {
  const varied = variedKeys(trials);
  assert.deepEqual(initialChoice(varied, [], "time"), { x: "loss", y: "time", lines: "transport", fixed: {} });
  const plot = { title: "", x: "transport", y: "time" };
  assert.equal(initialChoice(varied, [plot], "time")?.lines, "loss");
  assert.equal(initialChoice(new Map(), [], "time"), null);
});

test("other keys have a fixed value", () => {
  const varied = new Map([["a", [1, 2]], ["b", [3, 4]], ["c", [5, 6]]]);
  assert.deepEqual(completed({ x: "a", y: "time", lines: "b", fixed: { c: 6, a: 1 } }, varied).fixed, { c: 6 });
  assert.deepEqual(completed({ x: "a", y: "time", lines: "a", fixed: {} }, varied), { x: "a", y: "time", lines: null, fixed: { b: 3, c: 5 } });
});

test("points are medians of valid trials, and hollow without one", () => {
  const varied = variedKeys(trials);
  const { xs, lines } = seriesOf(trials, initialChoice(varied, [], "time")!, varied, label);
  assert.deepEqual(xs, [0, 0.01]);
  assert.deepEqual(lines.map((line) => line.label), ["auto", "tcp"]);
  assert.deepEqual(lines[0]!.points.map((point) => point?.value), [11, 20]);
  assert.equal(lines[1]!.points[0]?.value, null);
  assert.equal(lines[1]!.points[0]?.invalid, 30);
  assert.match(lines[1]!.points[0]!.reasons[0]!, /3.2 ms late/);
  assert.equal(lines[1]!.points[1], null);
});

test("the server's reason is shown as it is", () => {
  assert.deepEqual(pointOf([trial({}, 1, { invalid: true, reason: "Why." })], "time")?.reasons, ["Why."]);
  assert.equal(pointOf([trial({}, 1)], "other"), null);
});

test("medians of even numbers are between the middle ones", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1]), 2.5);
  assert.equal(median([]), null);
});

test("an axis with 0 and small values is spaced evenly", () => {
  assert.equal(scaleFor([0, 0.0001, 0.01]), "even");
  assert.equal(scaleFor([1, 10, 100]), "log");
  assert.equal(scaleFor([0, 10, 20]), "linear");
  assert.equal(scaleFor(["auto", "tcp"]), "even");
});
