import assert from "node:assert/strict";
import { test } from "node:test";
import { carriedBytes, ratesOf, totalRate } from "./rates";

const samples = [
  { time_s: 0.1, links: { a: [125_000, 0] as [number, number] } },
  { time_s: 0.2, links: { a: [375_000, 12_500] as [number, number] } },
  { time_s: 0.2, links: { a: [375_000, 12_500] as [number, number] } },
];

const rounded = (values: number[]) => values.map((value) => Math.round(value * 1000) / 1000);

test("a rate is the difference of bytes over the difference of times", () => {
  const rates = ratesOf(samples);
  assert.deepEqual(rates.times, [0, 0.1, 0.2]);
  assert.deepEqual(rates.curves.map(({ link, direction }) => [link, direction]), [["a", 0], ["a", 1]]);
  assert.deepEqual(rounded(rates.curves[0]!.mbit), [0, 10, 20]);
  assert.deepEqual(rounded(rates.curves[1]!.mbit), [0, 0, 1]);
  assert.deepEqual(rounded(totalRate(rates)), [0, 10, 21]);
});

test("bytes that become fewer give no negative rate", () => {
  const rates = ratesOf([samples[1]!, { time_s: 0.3, links: { a: [0, 0] } }]);
  assert.equal(rates.curves[0]!.mbit.at(-1), 0);
});

test("without samples there is only the start", () => {
  assert.deepEqual(ratesOf([]), { times: [0], curves: [] });
  assert.equal(carriedBytes([]), 0);
  assert.equal(carriedBytes(samples), 387_500);
});
