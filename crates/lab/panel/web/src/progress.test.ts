import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_OUTPUT, addEvent, axisEnd, emptyProgress, partiesOf, phasesOf, recordsOf } from "./progress";

const record = { repetition: 1, point: { loss: 0 }, values: { time: 30, connect: 10, gates: 20 }, predictions: {}, late_ms: 0, missed: 0, attempts: 1, invalid: false };
const begin = { event: "trial", number: 1, done: 0, total: 2, name: "trial 1 of 2", point: { loss: 0 }, predictions: {} } as const;

test("samples belong to the trial that runs, and a repeated trial begins anew", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  addEvent(progress, { event: "sample", time_s: 0.1, links: { a: [1, 2] } }, 0);
  assert.equal(progress.current?.samples.length, 1);
  addEvent(progress, begin, 0);
  assert.equal(progress.current?.samples.length, 0);
  addEvent(progress, { event: "result", number: 1, ...record }, 0);
  assert.deepEqual(recordsOf(progress), [record]);
  addEvent(progress, { event: "end", done: 2, total: 2 }, 0);
  addEvent(progress, { event: "state", state: "failed", error: "why" }, 0);
  assert.deepEqual([progress.done, progress.state, progress.error], [2, "failed", "why"]);
});

test("without events of phases they are taken from the measured times", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  addEvent(progress, { event: "result", number: 1, ...record }, 0);
  const starts = phasesOf(progress.current!, null).map(({ name, start_s }) => [name, start_s]);
  assert.deepEqual(starts, [["connect", 0], ["gates", 0.01]]);
});

test("a phase grows from its event until the event of its end", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  const phase = { event: "phase", number: 1, party: "evaluator", name: "gates", start_s: 0.5 } as const;
  addEvent(progress, phase, 1000);
  const trial = progress.current!;
  const grown = phasesOf(trial, 1250)[0]!;
  assert.deepEqual([grown.time_s, grown.isOpen, grown.bytes], [0.25, true, null]);
  assert.equal(axisEnd([grown]), 1);
  assert.deepEqual(partiesOf([grown], trial), ["garbler", "evaluator"]);
  addEvent(progress, { ...phase, time_s: 0.4, bytes: 7 }, 1500);
  const bars = phasesOf(trial, 9000);
  assert.deepEqual(bars.map(({ time_s, isOpen, bytes }) => [time_s, isOpen, bytes]), [[0.4, false, 7]]);
  assert.equal(axisEnd(bars), 0.9);
});

test("a phase that was never over ends with the others when nothing runs any more", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  addEvent(progress, { event: "phase", number: 1, party: "garbler", name: "setup", start_s: 0, time_s: 2 }, 0);
  addEvent(progress, { event: "phase", number: 1, party: "evaluator", name: "setup", start_s: 0.5 }, 0);
  assert.deepEqual(phasesOf(progress.current!, null).map((bar) => bar.time_s), [2, 1.5]);
});

test("a phase belongs to the trial of its number", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  addEvent(progress, { ...begin, number: 2 }, 0);
  addEvent(progress, { event: "phase", number: 1, party: "garbler", name: "gates", start_s: 0, time_s: 1 }, 0);
  assert.equal(progress.trials.get(1)?.phases.length, 1);
  assert.equal(progress.current?.phases.length, 0);
});

test("parties of other applications have the rows of their own bars only", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  addEvent(progress, { event: "phase", number: 1, party: "server 1", name: "sign", start_s: 0, time_s: 1 }, 0);
  const trial = progress.current!;
  assert.deepEqual(partiesOf(phasesOf(trial, null), trial), ["server 1"]);
});

test("of what a party prints the end is kept", () => {
  const progress = emptyProgress();
  addEvent(progress, begin, 0);
  const output = { event: "output", number: 1, party: "client", text: "one\n" } as const;
  addEvent(progress, output, 0);
  addEvent(progress, { ...output, text: "two\n" }, 0);
  assert.equal(progress.current?.outputs.get("client"), "one\ntwo\n");
  addEvent(progress, { ...output, text: "x".repeat(MAX_OUTPUT) + "end" }, 0);
  assert.equal(progress.current?.outputs.get("client")?.length, MAX_OUTPUT);
  assert.equal(progress.current?.outputs.get("client")?.slice(-3), "end");
});
