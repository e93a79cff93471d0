// The documents of the server's interface. Keys are those of the JSON.

export type KnobValue = string | number;

/** A few settings of a template, by the names of its knobs; each has one or more values. */
export type KnobValues = Record<string, KnobValue[]>;

interface KnobBase {
  name: string;
  label: string;
  help?: string;
  group: "what" | "how" | "where";
  /** Whether a run compares several values of it. */
  several: boolean;
}

export interface ChoiceKnob extends KnobBase {
  options: Record<string, { label: string }>;
  default: string[];
}

export interface NumberKnob extends KnobBase {
  unit: string;
  range: [number, number];
  default: number[];
  suggested: number[];
}

export type Knob = ChoiceKnob | NumberKnob;

export function isChoice(knob: Knob): knob is ChoiceKnob {
  return "options" in knob;
}

export interface Template {
  name: string;
  title: string;
  about: string;
  knobs: Knob[];
}

export interface NetworkPreset {
  name: string;
  about: string;
  values: Record<string, number>;
}

export interface BuiltInExperiment {
  name: string;
  about: string;
  paper: string | null;
  trials: number;
}

export type RunRequest =
  | { template: string; values: KnobValues; repetitions: number }
  | { experiment: string };

export type RunState = "queued" | "running" | "finished" | "stopped" | "failed" | "interrupted";

export interface RunSummary {
  id: string;
  title: string;
  /** The name of the experiment file. */
  file: string;
  request: RunRequest;
  created: string;
  state: RunState;
  done: number;
  total: number;
  invalid: number;
  note: string;
  error: string | null;
  seconds_left: number | null;
}

export interface PlotDefinition {
  title: string;
  x: string;
  y: string;
  lines?: string;
  each?: string;
}

export interface MeasuredValue {
  name: string;
  unit: string;
}

export interface ExperimentDescription {
  name: string;
  about: string;
  paper: string | null;
  trials: number;
  repetitions: number;
  keys: { name: string; values: KnobValue[] }[];
  values: MeasuredValue[];
  plots: PlotDefinition[];
}

export type Point = Record<string, KnobValue>;

/** Why a transport was chosen. */
export interface TransportReason {
  transport: string;
  sentence: string;
  /** The predicted time over each transport that was considered. */
  predicted_ms: Record<string, number>;
}

export interface TrialRecord {
  repetition: number;
  point: Point;
  values: Record<string, number>;
  predictions: Record<string, number>;
  late_ms: number;
  missed: number;
  attempts: number;
  invalid: boolean;
  /** Why it is invalid, in one sentence. */
  reason?: string;
  transport?: TransportReason;
}

export interface Machine {
  cpu: string;
  cores: number;
  memory_gib: number;
  kernel: string;
  congestion: string;
  sunder: string;
  revision?: string;
}

export interface RunResults {
  seed: number;
  machine: Machine;
  trials: TrialRecord[];
}

export interface RunDetails extends RunSummary {
  experiment: ExperimentDescription | null;
  results: RunResults | null;
}

export interface RunPage {
  runs: RunSummary[];
  total: number;
}

export interface RunQueue {
  running: RunSummary | null;
  queued: RunSummary[];
  seconds_left: number | null;
}

export interface RunPrediction {
  trials: number;
  seconds: number | null;
  predictions: { point: Point; time_ms: number }[];
}

export type RunEvent =
  | {
      event: "trial";
      number: number;
      done: number;
      total: number;
      name: string;
      point: Point;
      predictions: Record<string, number>;
    }
  | { event: "sample"; time_s: number; links: Record<string, [number, number]> }
  | { event: "phase"; party: string; name: string; start_s: number; time_s: number }
  | ({ event: "result"; number: number } & TrialRecord)
  | { event: "end"; done: number; total: number }
  | { event: "state"; state: RunState; error?: string | null };

export function isOver(state: RunState): boolean {
  return state !== "queued" && state !== "running";
}
