import { useState } from "preact/hooks";
import { MAX_VALUES, parseNumber, rangeOf, rangeText, withValues } from "../knobs";
import type { KnobValue, NumberKnob } from "../types";

interface Props {
  knob: NumberKnob;
  values: KnobValue[];
  onChange: (values: KnobValue[]) => void;
}

/** Several numbers: typed, suggested, or a range. */
export function ChipsField({ knob, values, onChange }: Props) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const add = () => {
    const numbers = typed.split(/[;\s]+/).filter(Boolean).map((text) => parseNumber(text, knob));
    if (numbers.length === 0 || numbers.includes(null)) {
      setProblem(`Write ${rangeText(knob, false)}, with spaces between them`);
      return;
    }
    setProblem(null);
    setTyped("");
    onChange(withValues(values, numbers as number[]));
  };
  const more = knob.suggested.filter((value) => !values.includes(value));
  return (
    <fieldset class="field chips">
      <legend>
        {knob.label} {knob.unit && <span class="hint">{knob.unit}</span>}
      </legend>
      {knob.help && <p class="hint">{knob.help}</p>}
      <ul class="chip-list">
        {values.map((value) => (
          <li key={value}>
            <button
              type="button"
              class="chip"
              aria-label={`Remove ${value} ${knob.unit}`}
              disabled={values.length === 1}
              onClick={() => onChange(values.filter((it) => it !== value))}
            >
              {value} <span aria-hidden="true">×</span>
            </button>
          </li>
        ))}
      </ul>
      {more.length > 0 && (
        <div class="suggested">
          <span class="hint">Add</span>
          {more.map((value) => (
            <button key={value} type="button" class="quiet" aria-label={`Add ${value} ${knob.unit}`} onClick={() => onChange(withValues(values, [value]))}>
              {value}
            </button>
          ))}
          {more.length > 1 && (
            <button type="button" class="quiet" onClick={() => onChange(withValues(values, more))}>all</button>
          )}
        </div>
      )}
      <details class="other-values">
        <summary>Other values</summary>
        <div class="add-value">
        <input
          type="text"
          inputMode="decimal"
          aria-label={`Other values of ${knob.label}`}
          aria-invalid={problem !== null}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter") return;
            event.preventDefault();
            add();
          }}
        />
        <button type="button" onClick={add} disabled={!typed.trim()}>Add</button>
      </div>
        <p class="hint wrong" role="alert" hidden={!problem}>{problem}</p>
        <RangeAdder knob={knob} onAdd={(range) => onChange(withValues(values, range))} />
      </details>
    </fieldset>
  );
}

function RangeAdder({ knob, onAdd }: { knob: NumberKnob; onAdd: (values: number[]) => void }) {
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  const [step, setStep] = useState("");
  const [isFactor, setFactor] = useState(false);
  const [first, last] = [parseNumber(from, knob), parseNumber(to, knob)];
  const values = first !== null && last !== null ? rangeOf(first, last, Number(step), isFactor) : [];
  const isWhole = !knob.whole || values.every(Number.isInteger);
  const isPossible = values.length > 0 && values.length <= MAX_VALUES && isWhole;
  const addOnEnter = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.target instanceof HTMLButtonElement) return;
    // Otherwise it would start the sweep.
    event.preventDefault();
    if (isPossible) onAdd(values);
  };
  const part = (label: string, value: string, set: (text: string) => void) => (
    <label>
      {label}
      <input type="text" inputMode="decimal" value={value} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
  return (
    <div class="range-parts" role="group" aria-label="Range" onKeyDown={addOnEnter}>
        {part("or from", from, setFrom)}
        {part("to", to, setTo)}
        <label>
          each
          <select value={isFactor ? "times" : "plus"} onChange={(event) => setFactor(event.currentTarget.value === "times")}>
            <option value="plus">plus</option>
            <option value="times">times</option>
          </select>
        </label>
        {part("step", step, setStep)}
        <button type="button" disabled={!isPossible} onClick={() => onAdd(values)}>
          Add {isPossible ? values.length : ""}
        </button>
    </div>
  );
}
