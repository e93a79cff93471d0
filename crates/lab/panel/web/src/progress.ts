// What is known of a run from its events.
import type { Sample } from "./rates";
import type { Point, RunEvent, RunState, TrialRecord } from "./types";

export interface PhaseBar {
  party: string;
  name: string;
  start_s: number;
  time_s: number;
}

/** A trial that has begun. */
export interface TrialProgress {
  number: number;
  name: string;
  point: Point;
  predictions: Record<string, number>;
  samples: Sample[];
  phases: PhaseBar[];
  record: TrialRecord | null;
}

export interface RunProgress {
  state: RunState | null;
  error: string | null;
  done: number;
  total: number;
  /** The trial that runs, or ran last. */
  current: TrialProgress | null;
  trials: Map<number, TrialProgress>;
  /** How many results have come, also of repeated trials. */
  results: number;
}

export function emptyProgress(): RunProgress {
  return { state: null, error: null, done: 0, total: 0, current: null, trials: new Map(), results: 0 };
}

/** Adds an event. A trial that is repeated begins anew. */
export function addEvent(progress: RunProgress, event: RunEvent): void {
  switch (event.event) {
    case "trial": {
      const { number, name, point, predictions } = event;
      const trial = { number, name, point, predictions, samples: [], phases: [], record: null };
      progress.trials.set(number, trial);
      progress.current = trial;
      progress.done = event.done;
      progress.total = event.total;
      break;
    }
    case "sample":
      progress.current?.samples.push({ time_s: event.time_s, links: event.links });
      break;
    case "phase": {
      const { party, name, start_s, time_s } = event;
      progress.current?.phases.push({ party, name, start_s, time_s });
      break;
    }
    case "result": {
      const { event: _, number, ...record } = event;
      const trial = progress.trials.get(number);
      if (trial) trial.record = record;
      progress.results += 1;
      break;
    }
    case "end":
      progress.done = event.done;
      progress.total = event.total;
      break;
    case "state":
      progress.state = event.state;
      progress.error = event.error ?? null;
      break;
  }
}

/** The records of the trials that have ended. */
export function recordsOf(progress: RunProgress): TrialRecord[] {
  return [...progress.trials.values()].flatMap((trial) => trial.record ?? []);
}

/** The order in which a computation does its work. */
const PHASES = ["connect", "setup", "inputs", "gates", "output"];

/** The phases of a trial: from its events, or else one after the other from its measured times. */
export function phasesOf(trial: TrialProgress): PhaseBar[] {
  if (trial.phases.length > 0) return trial.phases;
  let start_s = 0;
  return PHASES.flatMap((name) => {
    const time_ms = trial.record?.values[name];
    if (time_ms === undefined) return [];
    const bar = { party: "evaluator", name, start_s, time_s: time_ms / 1000 };
    start_s += bar.time_s;
    return [bar];
  });
}
