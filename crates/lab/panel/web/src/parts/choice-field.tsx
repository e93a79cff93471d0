import { inOrder } from "../knobs";
import type { ChoiceKnob, KnobValue } from "../types";

interface Props {
  knob: ChoiceKnob;
  values: KnobValue[];
  /** Whether several can be chosen. */
  several: boolean;
  onChange: (values: KnobValue[]) => void;
}

/** Names to choose from. */
export function ChoiceField({ knob, values, several, onChange }: Props) {
  const choose = (name: string, isOn: boolean) => {
    if (!several) return onChange([name]);
    const chosen = isOn ? [...values, name] : values.filter((value) => value !== name);
    // At least one stays chosen.
    if (chosen.length > 0) onChange(inOrder(knob, chosen));
  };
  return (
    <fieldset class="field choice">
      <legend>
        {knob.label}
        {several && <span class="hint"> several possible</span>}
      </legend>
      <div class="options">
        {knob.options.map(({ name, label }) => (
          <label key={name} class="option">
            <input
              type={several ? "checkbox" : "radio"}
              name={`knob-${knob.name}`}
              checked={values.includes(name)}
              onChange={(event) => {
                choose(name, event.currentTarget.checked);
                // If the last one was unchosen, it is shown as chosen again.
                event.currentTarget.checked = event.currentTarget.checked || (several && values.length === 1 && values[0] === name);
              }}
            />
            {label}
          </label>
        ))}
      </div>
      {knob.help && <p class="hint">{knob.help}</p>}
    </fieldset>
  );
}
