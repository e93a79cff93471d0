// What a plan must do: kappa and mu, or an objective with bounds.
import type { PlanBounds } from "./types";

/** The sliders of both ways, so that one can go back. */
export interface BoundSettings {
  way: "means" | "bounds";
  kappa: number;
  mu: number;
  objective: "privacy" | "loss" | "delay" | "rate";
  /** As typed; empty without a bound. */
  bounds: Record<"max_risk" | "max_loss" | "max_delay" | "min_rate", string>;
}

export const FIRST_BOUNDS: BoundSettings = {
  way: "means",
  kappa: 1.5,
  mu: 2,
  objective: "privacy",
  bounds: { max_risk: "", max_loss: "", max_delay: "", min_rate: "" },
};

const BOUNDS = [
  ["max_risk", "Risk at most", "probability"],
  ["max_loss", "Loss at most", "probability"],
  ["max_delay", "Delay at most", "ms"],
  ["min_rate", "Rate at least", "Mbit/s"],
] as const;

const OBJECTIVES = [
  ["privacy", "least risk"],
  ["loss", "least loss"],
  ["delay", "least delay"],
  ["rate", "highest rate"],
] as const;

/** What is sent. Kappa is at most mu, and mu at most the number of channels. */
export function boundsOf(settings: BoundSettings, channels: number): PlanBounds {
  const { way, objective, bounds } = settings;
  if (way === "means") return { ...meansOf(settings, channels), objective };
  const given = Object.entries(bounds).filter(([, text]) => text.trim() !== "" && Number.isFinite(Number(text)));
  return { objective, ...Object.fromEntries(given.map(([name, text]) => [name, Number(text)])) };
}

export function meansOf({ kappa, mu }: BoundSettings, channels: number): { kappa: number; mu: number } {
  const most = Math.min(mu, channels);
  return { kappa: Math.min(kappa, most), mu: most };
}

interface Props {
  settings: BoundSettings;
  channels: number;
  onChange: (settings: BoundSettings) => void;
}

export function BoundFields({ settings, channels, onChange }: Props) {
  const { way, objective, bounds } = settings;
  const { kappa, mu } = meansOf(settings, channels);
  return (
    <>
      <fieldset class="field">
        <legend class="hidden">Requirements</legend>
        <div class="options">
          {([["means", "kappa and mu"], ["bounds", "bounds"]] as const).map(([name, label]) => (
            <label key={name} class="option">
              <input type="radio" name="way" checked={way === name} onChange={() => onChange({ ...settings, way: name })} />
              {label}
            </label>
          ))}
        </div>
      </fieldset>
      {way === "means" ? (
        <>
          <MeanSlider name="kappa" label="kappa: mean number of shares needed" value={kappa} most={channels} onChange={(value) => onChange({ ...settings, kappa: value, mu: Math.max(mu, value) })} />
          <MeanSlider name="mu" label="mu: mean number of shares sent" value={mu} most={channels} onChange={(value) => onChange({ ...settings, mu: value, kappa: Math.min(kappa, value) })} />
        </>
      ) : (
        BOUNDS.map(([name, label, unit]) => (
          <div key={name} class="field bound">
            <label for={name}>{label}</label>
            <span class="with-unit">
              <input id={name} type="text" inputMode="decimal" placeholder="any" value={bounds[name]} aria-invalid={Number.isNaN(Number(bounds[name]))} onInput={(event) => onChange({ ...settings, bounds: { ...bounds, [name]: event.currentTarget.value } })} />
              <span class="unit">{unit}</span>
            </span>
          </div>
        ))
      )}
      <div class="field">
        <label for="objective">Objective</label>
        <select id="objective" value={objective} onChange={(event) => onChange({ ...settings, objective: event.currentTarget.value as BoundSettings["objective"] })}>
          {OBJECTIVES.map(([name, label]) => <option key={name} value={name}>{label}</option>)}
        </select>
      </div>
    </>
  );
}

interface SliderProps {
  name: string;
  label: string;
  value: number;
  most: number;
  onChange: (value: number) => void;
}

function MeanSlider({ name, label, value, most, onChange }: SliderProps) {
  const change = (text: string) => {
    const number = Number(text);
    if (number >= 1 && number <= most) onChange(number);
  };
  return (
    <div class="field">
      <label for={name}>{label}</label>
      <div class="slider">
        <input id={name} type="range" min={1} max={most} step={0.01} value={value} onInput={(event) => change(event.currentTarget.value)} />
        <input type="number" class="mean" aria-label={`${name}, number`} min={1} max={most} step={0.01} value={value} onInput={(event) => change(event.currentTarget.value)} />
      </div>
    </div>
  );
}
