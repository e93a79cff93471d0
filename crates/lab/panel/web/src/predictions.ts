// What the models expect, in words.
import { quantity } from "./format";
import { labelOf } from "./knobs";
import { variedKeys } from "./series";
import type { MeasuredValue, PointPrediction, Template, TrialTexts } from "./types";

/** More points are summarized. */
const MAX_NAMED = 6;

/**
 * The predictions of the first quantity: as in "about 900 ms for auto (burst); 1.4 s for QUIC", or
 * the least and the greatest of many points. Null without a prediction.
 */
export function predictionText(predictions: PointPrediction[], template: Template): string | null {
  const first = predictions.find((it) => it.values.length > 0)?.values[0];
  if (!first) return null;
  const keys = [...variedKeys(predictions).keys()];
  const known = predictions.flatMap(({ point, values, texts }) => {
    const predicted = values.find((it) => it.name === first.name)?.predicted;
    if (predicted === undefined) return [];
    const labels = keys.flatMap((key) => {
      const value = point[key];
      return value === undefined ? [] : labelOf(template.knobs.find((knob) => knob.name === key), value);
    });
    return [{ predicted, name: withTransport(labels.join(", "), texts) }];
  });
  const text = (value: number) => quantity(value, first.unit);
  if (known.length > MAX_NAMED) {
    const all = known.map((it) => it.predicted);
    return `from ${text(Math.min(...all))} to ${text(Math.max(...all))}`;
  }
  return `about ${known.map(({ predicted, name }) => `${text(predicted)}${name && ` ${name}`}`).join("; ")}`;
}

/** As in "for auto (burst)". The transport is left out if the name says it already. */
function withTransport(name: string, texts: TrialTexts | undefined): string {
  const transport = texts?.transport;
  if (!transport || name.toLowerCase().includes(transport.toLowerCase())) return name && `for ${name}`;
  return name ? `for ${name} (${transport})` : `over ${transport}`;
}

/** The word for the predictions of a quantity. */
export function predictionWord(value: MeasuredValue | undefined): "paper" | "predicted" {
  return value?.published ? "paper" : "predicted";
}

export interface TransportReason {
  /** As in "auto used burst: burst is predicted to take 0.34 s, tcp 0.51 s." */
  sentence: string;
  /** The predicted times over the transports that the sentence compares, in seconds. */
  predicted: { transport: string; time_s: number }[];
  /** What was known of the path, as in "round trip 110 ms". */
  facts: string[];
}

/** A transport and its predicted time in a sentence, as in "burst is predicted to take 0.34 s". */
const PREDICTED = /([\w-]+) (?:is predicted to take )?(\d+(?:\.\d+)?) s\b/g;

/** Why a transport was used; null if the texts do not say it. `name` is the setting, as in "auto". */
export function transportReason(name: string, texts: TrialTexts | undefined): TransportReason | null {
  const { transport, reason } = texts ?? {};
  if (!transport || !reason) return null;
  // The facts about the path are in parentheses at the end.
  const [, why = reason, basis] = /^(.*?)(?: \((.*)\))?\.?$/.exec(reason) ?? [];
  const times = [...why.matchAll(PREDICTED)].map(([, name, time]) => ({ transport: name!, time_s: Number(time) }));
  return {
    sentence: `${name || "The run"} used ${transport}: ${why}.`,
    predicted: times.length > 1 ? times : [],
    facts: basis?.split(", ") ?? [],
  };
}
