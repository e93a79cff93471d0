// What a run measured, a row for each point, with the prediction beside it.
import { deviation, quantity } from "../format";
import { pointOf, reasonOf } from "../series";
import type { MeasuredValue, TrialRecord } from "../types";
import type { Labels } from "./labels";

interface Props {
  trials: TrialRecord[];
  values: MeasuredValue[];
  /** The keys that vary. */
  keys: string[];
  labels: Labels;
}

/** More rows are in the file only, so that the page stays quick. */
const MAX_ROWS = 300;

interface Row {
  trials: TrialRecord[];
  cells: string[];
}

export function ResultTable({ trials, values, keys, labels }: Props) {
  const rows = rowsOf(trials, keys, labels);
  const [main, ...others] = values;
  if (!main || rows.length === 0) return null;
  const measured = others.filter((value) => trials.some((trial) => value.name in trial.values));
  const hasPrediction = trials.some((trial) => main.name in trial.predictions);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of results">
      <table class="results">
        <thead>
          <tr>
            {keys.map((key) => <th key={key} scope="col">{labels.key(key)}</th>)}
            <th scope="col" class="number">{main.name}</th>
            {hasPrediction && <th scope="col" class="number">predicted</th>}
            {hasPrediction && <th scope="col" class="number">difference</th>}
            {measured.map((value) => <th key={value.name} scope="col" class="number">{value.name}</th>)}
            <th scope="col">trials</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MAX_ROWS).map((row) => {
            const point = pointOf(row.trials, main.name);
            const value = point?.value ?? point?.invalid ?? null;
            const predicted = point?.predicted ?? null;
            return (
              <tr key={row.cells.join(" ")} class={point?.valid === 0 ? "invalid" : undefined}>
                {row.cells.map((cell, i) => <td key={keys[i]}>{cell}</td>)}
                <td class="number main-value">{value === null ? "–" : quantity(value, main.unit)}</td>
                {hasPrediction && <td class="number">{predicted === null ? "–" : quantity(predicted, main.unit)}</td>}
                {hasPrediction && <td class="number hint">{value !== null && predicted !== null && deviation(value, predicted)}</td>}
                {measured.map(({ name, unit }) => {
                  const other = pointOf(row.trials, name);
                  const found = other?.value ?? other?.invalid;
                  return <td key={name} class="number">{found == null ? "–" : quantity(found, unit)}</td>;
                })}
                <td><Validity trials={row.trials} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {rows.length > MAX_ROWS && <p class="hint">These are the first {MAX_ROWS} of {rows.length} points. The file results.csv has all.</p>}
    </div>
  );
}

function Validity({ trials }: { trials: TrialRecord[] }) {
  const invalid = trials.filter((trial) => trial.invalid);
  if (invalid.length === 0) return <>{trials.length} valid</>;
  const reasons = [...new Set(invalid.map(reasonOf))];
  return (
    <>
      <span class="wrong">{invalid.length} of {trials.length} invalid</span>
      <div class="hint">{reasons[0]}</div>
    </>
  );
}

function rowsOf(trials: TrialRecord[], keys: string[], labels: Labels): Row[] {
  const rows = new Map<string, Row>();
  for (const trial of trials) {
    const cells = keys.map((key) => labels.value(key, trial.point[key] ?? "–"));
    const name = cells.join("\0");
    const row = rows.get(name) ?? { trials: [], cells };
    row.trials.push(trial);
    rows.set(name, row);
  }
  return [...rows.values()];
}

/** Which point is the best, in one sentence; null if there is nothing to compare. */
export function comparisonSentence(trials: TrialRecord[], values: MeasuredValue[], keys: string[], labels: Labels): string | null {
  const main = values[0];
  if (!main || main.unit !== "ms") return null;
  const rows = rowsOf(trials, keys, labels).flatMap((row) => {
    const value = pointOf(row.trials, main.name)?.value;
    return value == null ? [] : [{ name: row.cells.join(", "), value }];
  });
  if (rows.length < 2) return null;
  rows.sort((a, b) => a.value - b.value);
  const [first, last] = [rows[0]!, rows.at(-1)!];
  const factor = last.value / first.value;
  const than = factor < 1.05 ? `about as fast as ${last.name}` : `${Number(factor.toPrecision(2))} times as fast as ${last.name}`;
  return `${first.name} took ${quantity(first.value, main.unit)}, ${than}, which took ${quantity(last.value, main.unit)}.`;
}
