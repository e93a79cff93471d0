// The documents of the server's interface. Keys are those of the JSON.

export type KnobValue = string | number;

/** The values of knobs by the names of the knobs; each has one or more. Files are not among them. */
export type KnobValues = Record<string, KnobValue[]>;

/** A text file that a request contains. */
export interface SentFile {
  name: string;
  text: string;
}

/** An archive that a request contains. */
export interface SentArchive {
  name: string;
  base64: string;
}

/** What the server keeps of a file in the request. */
export interface StoredFile {
  name: string;
  bytes: number;
  sha256: string;
}

export type RequestValue = KnobValue | SentFile | SentArchive | StoredFile;

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
  /** Whether it has whole numbers only. */
  whole?: boolean;
  default: number[];
  suggested: number[];
}

export interface FileKnob extends KnobBase {
  kind: "file";
  /** The endings of names that a file dialog offers, as in ".csv,.txt". */
  accept: string;
  max_bytes: number;
  /** Whether the template has an example, which is used without a file. */
  has_example?: boolean;
}

/** An archive, or a folder that becomes one. It need not be chosen. */
export interface ArchiveKnob extends KnobBase {
  kind: "archive";
  accept: string;
  max_bytes: number;
  /** The knobs with files whose place it takes. */
  replaces: string[];
}

export type Knob = ChoiceKnob | NumberKnob | FileKnob | ArchiveKnob;

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
  | { template: string; values: Record<string, RequestValue[]>; repetitions: number; seed?: number }
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
  /** Whether others can open it by a link. */
  shared?: boolean;
  /** In the queue: the place among all runs that wait. */
  place?: number;
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
  /** Whether its predictions are figures that the paper published. */
  published?: boolean;
}

export type Point = Record<string, KnobValue>;

/** Words that a trial reports beside its values, such as the transport that auto chose. */
export type TrialTexts = Record<string, string>;

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
  texts?: TrialTexts;
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

/** Who uses the page. */
export interface Session {
  /** Whether the server has accounts. Without them, it has one user. */
  accounts: boolean;
  /** The account, if the browser is signed in. */
  name: string | null;
  usage: AccountUsage | null;
}

/** What an account uses, and its quotas. */
export interface AccountUsage {
  runs: number;
  unfinished: number;
  max_unfinished: number;
  bytes: number;
  max_bytes: number;
  seconds_today: number;
  max_seconds_a_day: number;
}

export interface RunQueue {
  running: RunSummary | null;
  queued: RunSummary[];
  seconds_left: number | null;
}

export interface RunPrediction {
  trials: number;
  seconds: number | null;
  /** One for each point. */
  predictions: PointPrediction[];
}

export interface PointPrediction {
  point: Point;
  values: { name: string; unit: string; predicted: number }[];
  texts?: TrialTexts;
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
  | PhaseEvent
  | OutputEvent
  | ({ event: "result"; number: number } & TrialRecord)
  | { event: "end"; done: number; total: number }
  | { event: "state"; state: RunState; error?: string | null };

/** A phase of a party has begun, or is over if it has a time. */
export interface PhaseEvent {
  event: "phase";
  number: number;
  party: string;
  name: string;
  start_s: number;
  time_s?: number;
  bytes?: number;
}

/** A party of a trial has printed lines. */
export interface OutputEvent {
  event: "output";
  number: number;
  party: string;
  text: string;
}

export function isOver(state: RunState): boolean {
  return state !== "queued" && state !== "running";
}
