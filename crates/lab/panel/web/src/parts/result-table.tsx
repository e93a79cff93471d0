// What a run measured, a row for each point, with the prediction beside it.
import { Fragment } from "preact";
import { deviation, quantity } from "../format";
import { predictionWord } from "../predictions";
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
  const isPredicted = (value: MeasuredValue) => trials.some((trial) => value.name in trial.predictions);
  const hasPrediction = isPredicted(main);
  const hasTransport = trials.some((trial) => trial.texts?.transport);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of results">
      <table class="results">
        <thead>
          <tr>
            {keys.map((key) => <th key={key} scope="col">{labels.key(key)}</th>)}
            {hasTransport && <th scope="col">used</th>}
            <th scope="col" class="number">{main.name}</th>
            {hasPrediction && <PredictionHead value={main} />}
            {hasPrediction && <th scope="col" class="number">difference</th>}
            {measured.map((value) => (
              <Fragment key={value.name}>
                <th scope="col" class="number">{value.name}</th>
                {isPredicted(value) && <PredictionHead value={value} />}
              </Fragment>
            ))}
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
                {hasTransport && <td>{transportsOf(row.trials)}</td>}
                <td class="number main-value">{quantityOr(value, main.unit)}</td>
                {hasPrediction && <td class="number">{quantityOr(predicted, main.unit)}</td>}
                {hasPrediction && <td class="number hint">{value !== null && predicted !== null && deviation(value, predicted)}</td>}
                {measured.map((it) => {
                  const other = pointOf(row.trials, it.name);
                  return (
                    <Fragment key={it.name}>
                      <td class="number">{quantityOr(other?.value ?? other?.invalid, it.unit)}</td>
                      {isPredicted(it) && <td class="number">{quantityOr(other?.predicted, it.unit)}</td>}
                    </Fragment>
                  );
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

const quantityOr = (value: number | null | undefined, unit: string) => (value == null ? "–" : quantity(value, unit));

function PredictionHead({ value }: { value: MeasuredValue }) {
  return <th scope="col" class="number"><span class="hidden">{value.name}, </span>{predictionWord(value)}</th>;
}

/** The transports that the trials of a point used. */
function transportsOf(trials: TrialRecord[]): string {
  return [...new Set(trials.flatMap((trial) => trial.texts?.transport ?? []))].join(", ");
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
  if (!main || !["ms", "s"].includes(main.unit)) return null;
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
