import { useEffect, useState } from "preact/hooks";
import { POSITIONS, movedTo, parseNumber, positionOf, rangeText } from "../knobs";
import type { NumberKnob } from "../types";

interface Props {
  knob: NumberKnob;
  value: number;
  onChange: (value: number) => void;
}

/** A slider and a number beside it. */
export function NumberField({ knob, value, onChange }: Props) {
  const [typed, setTyped] = useState(String(value));
  const [isWrong, setWrong] = useState(false);
  useEffect(() => {
    setTyped(String(value));
    setWrong(false);
  }, [value]);
  const id = `knob-${knob.name}`;
  const type = (text: string) => {
    setTyped(text);
    const number = parseNumber(text, knob);
    setWrong(number === null);
    if (number !== null && number !== value) onChange(number);
  };
  return (
    <div class="field">
      <label for={id}>{knob.label}</label>
      <div class="slider">
        <input
          type="range"
          min={0}
          max={POSITIONS}
          value={positionOf(knob, value)}
          aria-label={`${knob.label}, slider`}
          aria-valuetext={`${value} ${knob.unit}`}
          onInput={(event) => onChange(movedTo(knob, value, Number(event.currentTarget.value)))}
        />
        <span class="with-unit">
          <input
            id={id}
            type="text"
            inputMode="decimal"
            value={typed}
            aria-invalid={isWrong}
            aria-describedby={`${id}-range`}
            onInput={(event) => type(event.currentTarget.value)}
          />
          <span class="unit">{knob.unit}</span>
        </span>
      </div>
      <p id={`${id}-range`} class={isWrong ? "hint wrong" : "hint"} hidden={!isWrong && !knob.help}>
        {isWrong ? `Write ${rangeText(knob, true)}` : knob.help}
      </p>
    </div>
  );
}
