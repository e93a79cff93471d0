import assert from "node:assert/strict";
import { test } from "node:test";
import { latestOnly } from "./latest";

test("only one request at a time, and the newest one wins", async () => {
  const begun: number[] = [];
  const results: number[] = [];
  const release: (() => void)[] = [];
  const asker = latestOnly<number, number>(
    (argument) => {
      begun.push(argument);
      return new Promise((resolve) => release.push(() => resolve(argument)));
    },
    (result) => results.push(result),
    (error) => assert.fail(error),
  );
  for (const argument of [1, 2, 3]) asker.ask(argument);
  assert.deepEqual(begun, [1]);
  release[0]!();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(begun, [1, 3]);
  release[1]!();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(results, [1, 3]);
  asker.ask(4);
  asker.end();
  release[2]!();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(results, [1, 3]);
});
