// Why each point used its transport, as the trials tell it.
import { quantity } from "../format";
import { type TransportReason, transportReason } from "../predictions";
import type { TrialRecord } from "../types";
import type { Labels } from "./labels";

interface Props {
  trials: TrialRecord[];
  /** The keys that vary. */
  keys: string[];
  labels: Labels;
}

/** More are in the file only. */
const MAX_ROWS = 100;

export function TransportReasons({ trials, keys, labels }: Props) {
  const reasons = reasonsOf(trials, keys, labels);
  const [only] = reasons;
  if (!only) return null;
  if (reasons.length > 1) {
    return (
      <details>
        <summary>Why these transports</summary>
        <ul class="reasons">
          {reasons.slice(0, MAX_ROWS).map(({ name, sentence, facts }) => (
            <li key={name}>
              <b>{name}</b>: {sentence} <span class="hint">{facts.join(", ")}</span>
            </li>
          ))}
        </ul>
      </details>
    );
  }
  return (
    <>
      <p class="sentence">{only.sentence}</p>
      {only.predicted.length > 0 && <PredictedTimes times={only.predicted} />}
      {only.facts.length > 0 && <p class="hint">What was known of the path: {only.facts.join(", ")}.</p>}
    </>
  );
}

function PredictedTimes({ times }: { times: TransportReason["predicted"] }) {
  return (
    <table class="small-table">
      <thead>
        <tr><th scope="col">transport</th><th scope="col" class="number">predicted</th></tr>
      </thead>
      <tbody>
        {times.map(({ transport, time_s }) => (
          <tr key={transport}><td>{transport}</td><td class="number">{quantity(time_s * 1000, "ms")}</td></tr>
        ))}
      </tbody>
    </table>
  );
}

interface NamedReason extends TransportReason {
  name: string;
}

/** One for each point, in the order of the trials. */
function reasonsOf(trials: TrialRecord[], keys: string[], labels: Labels): NamedReason[] {
  const reasons = new Map<string, NamedReason>();
  for (const { point, texts } of trials) {
    const name = keys.map((key) => labels.value(key, point[key] ?? "–")).join(", ");
    const setting = point.transport === undefined ? "" : labels.value("transport", point.transport);
    const reason = transportReason(setting, texts);
    if (reason && !reasons.has(name)) reasons.set(name, { name, ...reason });
  }
  return [...reasons.values()];
}
