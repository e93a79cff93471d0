// The documents of the server's interface. Keys are those of the JSON.

export type KnobValue = string | number;

/** A few settings of a template, by the names of its knobs; each has one or more values. */
export type KnobValues = Record<string, KnobValue[]>;

interface KnobBase {
  name: string;
  label: string;
  help?: string;
  group: "what" | "how" | "where";
}

export interface ChoiceKnob extends KnobBase {
  kind: "choice";
  options: { name: string; label: string }[];
  default: string[];
  /** Whether a run compares several values of it. */
  multiple: boolean;
}

export interface NumberKnob extends KnobBase {
  kind: "number";
  unit: string;
  min: number;
  max: number;
  default: number[];
  suggested: number[];
}

export type Knob = ChoiceKnob | NumberKnob;

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
  /** Absent from a list if the server does not give it there. */
  request?: RunRequest;
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
  /** Why it is invalid, in a few words. */
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

export interface RunDetails extends RunSummary {
  request: RunRequest;
  /** The name of the experiment file. */
  file: string;
  /** The swept keys. */
  keys: string[];
  values: MeasuredValue[];
  plots: PlotDefinition[];
  /** Those that have ended. */
  trials: TrialRecord[];
  /** `null` before the run has begun. */
  machine: Machine | null;
  seed?: number;
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
