import assert from "node:assert/strict";
import { test } from "node:test";
import { predictionText, predictionWord, transportReason } from "./predictions";
import type { ChoiceKnob, Template } from "./types";

const transport: ChoiceKnob = { kind: "choice", name: "transport", label: "Transport", group: "how", multiple: true, options: [{ name: "auto", label: "auto" }, { name: "tcp-cubic", label: "TCP, CUBIC" }], default: ["auto"] };
const template: Template = { name: "t", title: "", about: "", knobs: [transport] };
const point = (name: string, predicted: number, texts?: Record<string, string>) => ({
  point: { transport: name, loss: 0 },
  values: [{ name: "time", unit: "ms", predicted }],
  ...(texts && { texts }),
});

test("predictions name the points that differ, and the transport that auto uses", () => {
  const predictions = [point("auto", 900, { transport: "burst" }), point("tcp-cubic", 1400, { transport: "tcp" })];
  assert.equal(predictionText(predictions, template), "about 900 ms for auto (burst); 1.4 s for TCP, CUBIC");
});

test("a single prediction needs no name, and none is no text", () => {
  assert.equal(predictionText([point("auto", 900)], template), "about 900 ms");
  assert.equal(predictionText([point("auto", 900, { transport: "burst" })], template), "about 900 ms over burst");
  assert.equal(predictionText([], template), null);
  assert.equal(predictionText([{ point: {}, values: [] }], template), null);
});

test("many predictions are a range", () => {
  const predictions = Array.from({ length: 9 }, (_, i) => ({ ...point("auto", 1000 * (i + 1)), point: { loss: i } }));
  assert.equal(predictionText(predictions, template), "from 1 s to 9 s");
});

test("published values are of the paper", () => {
  assert.equal(predictionWord({ name: "time", unit: "ms", published: true }), "paper");
  assert.equal(predictionWord({ name: "time", unit: "ms" }), "predicted");
});

test("the reason of a transport has the predicted times and the facts about the path", () => {
  const reason = "burst is predicted to take 0.341 s, tcp 0.512 s (round trip 110.0 ms, 950 Mbit/s up)";
  assert.deepEqual(transportReason("auto", { transport: "burst", reason }), {
    sentence: "auto used burst: burst is predicted to take 0.341 s, tcp 0.512 s.",
    predicted: [{ transport: "burst", time_s: 0.341 }, { transport: "tcp", time_s: 0.512 }],
    facts: ["round trip 110.0 ms", "950 Mbit/s up"],
  });
});

test("a reason without numbers is a sentence only", () => {
  assert.deepEqual(transportReason("", { transport: "tcp", reason: "TCP cannot be left." }), { sentence: "The run used tcp: TCP cannot be left.", predicted: [], facts: [] });
  assert.equal(transportReason("tcp", { transport: "tcp" }), null);
  assert.equal(transportReason("tcp", undefined), null);
});
