import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, deviation, duration, oneIn, percent, quantity, short } from "./format";

test("numbers have four significant digits and commas", () => {
  assert.equal(short(0), "0");
  assert.equal(short(0.123456), "0.1235");
  assert.equal(short(100), "100");
  assert.equal(short(123456.7), "123,500");
  assert.equal(short(0.0001), "0.0001");
  assert.equal(short(0.00001234), "1.234e-5");
  assert.equal(short(1e12), "1e+12");
  assert.equal(short(Number.NaN), "–");
});

test("counts keep all digits", () => {
  assert.equal(count(48211), "48,211");
  assert.equal(count(999), "999");
  assert.equal(count(1234567), "1,234,567");
});

test("probabilities are percent or one in so many", () => {
  assert.equal(percent(0.099), "9.9 %");
  assert.equal(percent(0.00000012345), "1.2e-5 %");
  assert.equal(oneIn(0.01), "1 in 100");
  assert.equal(oneIn(0.000123), "1 in 8,130");
  assert.equal(oneIn(0), "never");
});

test("long times are in seconds", () => {
  assert.equal(quantity(432.1, "ms"), "432 ms");
  assert.equal(quantity(1234, "ms"), "1.23 s");
  assert.equal(quantity(0.25, "MB"), "0.25 MB");
});

test("durations have two units", () => {
  assert.equal(duration(0.2), "less than 1 s");
  assert.equal(duration(59.4), "59 s");
  assert.equal(duration(59.6), "1 min");
  assert.equal(duration(200), "3 min 20 s");
  assert.equal(duration(7500), "2 h 5 min");
  assert.equal(duration(86_400 * 3), "3 days");
});

test("bytes have decimal prefixes", () => {
  assert.equal(bytes(999), "999 B");
  assert.equal(bytes(132_400), "132 kB");
  assert.equal(bytes(3.05e9), "3.05 GB");
});

test("deviations say in which direction", () => {
  assert.equal(deviation(110, 100), "10 % more");
  assert.equal(deviation(98, 100), "2 % less");
  assert.equal(deviation(100.2, 100), "none");
});
