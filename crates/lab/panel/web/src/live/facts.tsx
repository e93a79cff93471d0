// Values of a status document that need no picture.
import { bytes, count, duration, percent, short } from "../format";

export interface Fact {
  label: string;
  text: string;
}

export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(({ label, text }) => (
        <div key={label}><dt>{label}</dt><dd>{text}</dd></div>
      ))}
    </dl>
  );
}

type Numbers = Record<string, number | null | undefined>;

/** What a tunnel achieves beside what the model predicts. */
export function tunnelFacts(status: Record<string, unknown>): Fact[] {
  const achieved = (status.achieved ?? {}) as Numbers;
  const predicted = (status.predicted ?? {}) as Numbers;
  const beside = (label: string, name: string, text: (value: number) => string): Fact[] => {
    const [is, should] = [achieved[name], predicted[name]];
    if (is == null) return [];
    return [{ label, text: text(is) + (should == null ? "" : ` (predicted ${text(should)})`) }];
  };
  return [
    ...beside("Risk", "risk", percent),
    ...beside("Loss out", "loss_out", percent),
    ...beside("Loss in", "loss_in", percent),
    ...beside("Delay", "delay_ms", (value) => `${short(value)} ms`),
    ...beside("kappa", "kappa", short),
    ...beside("mu", "mu", short),
  ];
}

export function streamFacts(status: Record<string, unknown>): Fact[] {
  const streams = status.streams as Numbers | undefined;
  if (!streams) return [];
  const parts = [["Open streams", "under_way"], ["Finished", "finished"], ["Refused", "refused"], ["Broken", "broken"], ["Tampered with", "tampered"]] as const;
  return parts.map(([label, name]) => ({ label, text: count(streams[name] ?? 0) }));
}

/** All values of a document that are numbers or words, for kinds without a picture. */
export function plainFacts(status: Record<string, unknown>): Fact[] {
  return Object.entries(status).flatMap(([name, value]) => {
    if (typeof value === "string" && value) return [{ label: words(name), text: value }];
    if (typeof value !== "number") return [];
    if (name.endsWith("_bytes")) return [{ label: words(name.slice(0, -6)), text: bytes(value) }];
    if (name.endsWith("_s")) return [{ label: words(name.slice(0, -2)), text: duration(value) }];
    if (name.endsWith("_mbit")) return [{ label: words(name.slice(0, -5)), text: `${short(Math.round(value))} Mbit/s` }];
    return [{ label: words(name), text: short(value) }];
  });
}

const words = (name: string) => (name[0] ?? "").toUpperCase() + name.slice(1).replaceAll("_", " ");
