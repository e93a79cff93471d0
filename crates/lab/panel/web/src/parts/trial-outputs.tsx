// What the parties of a trial have printed, and what came of it.
import type { TrialProgress } from "../progress";

export function TrialOutputs({ trial, name }: { trial: TrialProgress; name: string }) {
  const result = trial.record?.texts?.result;
  if (trial.outputs.size === 0 && !result) return null;
  return (
    <section class="card" aria-labelledby="outputs-title">
      <h2 id="outputs-title">Output</h2>
      <p class="hint">{name}.</p>
      {result && <p class={result === "ok" ? "sentence" : "sentence wrong"}>{result}</p>}
      {[...trial.outputs].map(([party, text]) => (
        <figure key={party}>
          <figcaption>{party}</figcaption>
          <pre tabIndex={0}>{text}</pre>
        </figure>
      ))}
    </section>
  );
}
