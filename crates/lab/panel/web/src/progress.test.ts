import assert from "node:assert/strict";
import { test } from "node:test";
import { addEvent, emptyProgress, phasesOf, recordsOf } from "./progress";

const record = { repetition: 1, point: { loss: 0 }, values: { time: 30, connect: 10, gates: 20 }, predictions: {}, late_ms: 0, missed: 0, attempts: 1, invalid: false };
const begin = { event: "trial", number: 1, done: 0, total: 2, name: "trial 1 of 2", point: { loss: 0 }, predictions: {} } as const;

test("samples belong to the trial that runs, and a repeated trial begins anew", () => {
  const progress = emptyProgress();
  addEvent(progress, begin);
  addEvent(progress, { event: "sample", time_s: 0.1, links: { a: [1, 2] } });
  assert.equal(progress.current?.samples.length, 1);
  addEvent(progress, begin);
  assert.equal(progress.current?.samples.length, 0);
  addEvent(progress, { event: "result", number: 1, ...record });
  assert.deepEqual(recordsOf(progress), [record]);
  addEvent(progress, { event: "end", done: 2, total: 2 });
  addEvent(progress, { event: "state", state: "failed", error: "why" });
  assert.deepEqual([progress.done, progress.state, progress.error], [2, "failed", "why"]);
});

test("without events of phases they are taken from the measured times", () => {
  const progress = emptyProgress();
  addEvent(progress, begin);
  addEvent(progress, { event: "result", number: 1, ...record });
  const starts = phasesOf(progress.current!).map(({ name, start_s }) => [name, start_s]);
  assert.deepEqual(starts, [["connect", 0], ["gates", 0.01]]);
});
