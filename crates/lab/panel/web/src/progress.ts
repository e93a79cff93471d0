// What is known of a run from its events.
import type { Sample } from "./rates";
import type { PhaseEvent, Point, RunEvent, RunState, TrialRecord } from "./types";

/** A phase as it is drawn. */
export interface PhaseBar {
  party: string;
  name: string;
  start_s: number;
  time_s: number;
  bytes: number | null;
  /** Whether it is not over. */
  isOpen: boolean;
}

/** A phase as the events tell it. */
interface PhaseProgress {
  party: string;
  name: string;
  start_s: number;
  /** Null until it is over. */
  time_s: number | null;
  bytes: number | null;
  /** When this page learnt that it has begun, on the page's clock. */
  seen_ms: number;
}

/** A trial that has begun. */
export interface TrialProgress {
  number: number;
  name: string;
  point: Point;
  predictions: Record<string, number>;
  samples: Sample[];
  phases: PhaseProgress[];
  /** The end of what each party has printed. */
  outputs: Map<string, string>;
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

/** Adds an event, which comes at a moment of the page's clock. A trial that is repeated begins anew. */
export function addEvent(progress: RunProgress, event: RunEvent, now_ms: number): void {
  switch (event.event) {
    case "trial": {
      const { number, name, point, predictions } = event;
      const trial = { number, name, point, predictions, samples: [], phases: [], outputs: new Map(), record: null };
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
      const trial = progress.trials.get(event.number) ?? progress.current;
      if (trial) addPhase(trial.phases, event, now_ms);
      break;
    }
    case "output": {
      const trial = progress.trials.get(event.number) ?? progress.current;
      const printed = (trial?.outputs.get(event.party) ?? "") + event.text;
      trial?.outputs.set(event.party, printed.slice(-MAX_OUTPUT));
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

/** How much of the end of a party's output is kept, in UTF-16 units. The files have all of it. */
export const MAX_OUTPUT = 20_000;

/** Begins a phase, or ends the one that has begun. */
function addPhase(phases: PhaseProgress[], event: PhaseEvent, now_ms: number): void {
  const { party, name, start_s, time_s = null, bytes = null } = event;
  const phase = { party, name, start_s, time_s, bytes, seen_ms: now_ms };
  const open = phases.findIndex((it) => it.party === party && it.name === name && it.time_s === null);
  if (open >= 0) phases[open] = { ...phase, seen_ms: phases[open]!.seen_ms };
  else phases.push(phase);
}

/** The records of the trials that have ended. */
export function recordsOf(progress: RunProgress): TrialRecord[] {
  return [...progress.trials.values()].flatMap((trial) => trial.record ?? []);
}

/** The order in which a computation does its work. */
export const PHASES = ["connect", "setup", "inputs", "gates", "output"];

/** The parties of a computation. */
const PARTIES = ["garbler", "evaluator"];

/**
 * The phases of a trial: from its events, or else one after the other from its measured times.
 * Phases that are not over last until `now_ms`; without it nothing runs any more.
 */
export function phasesOf(trial: TrialProgress, now_ms: number | null): PhaseBar[] {
  if (trial.phases.length === 0) return measuredPhases(trial.record);
  const isRunning = now_ms !== null && trial.record === null;
  const end_s = Math.max(...trial.phases.map((it) => it.start_s + (it.time_s ?? 0)));
  return trial.phases.map(({ party, name, start_s, time_s, bytes, seen_ms }) => {
    const passed_s = isRunning ? Math.max(0, now_ms - seen_ms) / 1000 : end_s - start_s;
    return { party, name, start_s, time_s: time_s ?? passed_s, bytes, isOpen: time_s === null };
  });
}

function measuredPhases(record: TrialRecord | null): PhaseBar[] {
  let start_s = 0;
  return PHASES.flatMap((name) => {
    const time_ms = record?.values[name];
    if (time_ms === undefined) return [];
    const bar = { party: "evaluator", name, start_s, time_s: time_ms / 1000, bytes: null, isOpen: false };
    start_s += bar.time_s;
    return [bar];
  });
}

/** The parties in the order of their rows. Both parties of a computation have one from the start. */
export function partiesOf(bars: PhaseBar[], trial: TrialProgress): string[] {
  const own = [...new Set(bars.map((bar) => bar.party))];
  const isComputation = trial.phases.length > 0 && own.some((party) => PARTIES.includes(party));
  const first = isComputation ? PARTIES : [];
  return [...first, ...own.filter((party) => !first.includes(party))];
}

/** The end of the time axis: while the bars grow, a round number, so that one sees them grow. */
export function axisEnd(bars: PhaseBar[]): number {
  const end_s = Math.max(0, ...bars.map((bar) => bar.start_s + bar.time_s));
  if (!bars.some((bar) => bar.isOpen)) return end_s || 1;
  const power = 10 ** Math.floor(Math.log10(Math.max(end_s, 0.1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((it) => it > end_s) ?? 10 * power;
}
