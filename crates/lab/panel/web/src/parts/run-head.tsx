// The state of a run, and what a person can do with it.
import { useState } from "preact/hooks";
import { api } from "../api";
import { count, duration, moment } from "../format";
import { goTo, guestRun } from "../router";
import { isOver, type RunDetails, type RunQueue, type RunState } from "../types";
import { ErrorLine, StateBadge, ViewHeading } from "./basics";
import { usePolled } from "./load";
import { RunLink } from "./run-link";

interface Props {
  run: RunDetails;
  settings: string;
  state: RunState;
  error: string | null;
  done: number;
  total: number;
  /** The name of the trial that runs. */
  now: string | null;
  isSweep: boolean;
  onResumed: () => void;
}

export function RunHead({ run, settings, state, error, done, total, now, isSweep, onResumed }: Props) {
  const [failure, setFailure] = useState<string | null>(null);
  const [isStopping, setStopping] = useState(false);
  const [queue, setQueue] = useState<RunQueue | null>(null);
  const isOpen = !isOver(state);
  const isGuest = guestRun !== null;
  usePolled(async () => {
    if (isOpen && !isGuest) setQueue(await api.queue().catch(() => null));
  }, 2000, [isOpen]);
  const fail = (reason: Error) => {
    setFailure(reason.message);
    setStopping(false);
  };
  const stop = () => {
    setStopping(true);
    api.stop(run.id).catch(fail);
  };
  const resume = () => api.resume(run.id).then(onResumed, fail);
  const again = "template" in run.request ? `${isSweep ? "sweep" : "run"}?from=${run.id}` : null;
  return (
    <>
      <ViewHeading about={<>{settings}{settings && <br />}{moment(run.created)} · {run.id}</>}>
        {run.title} <StateBadge state={state} />
      </ViewHeading>
      {isOpen && (
        <div class="running">
          <progress value={done} max={total || 1} aria-label="Trials done" />
          <p aria-live="polite">{isStopping ? "Stopping" : progressText(state, done, total, run.id, queue)}</p>
          {now && state === "running" && <p class="hint">{now}</p>}
        </div>
      )}
      <ErrorLine text={failure ?? error ?? run.error} />
      {!isGuest && <div class="buttons">
        {isOpen && <button type="button" class="danger" disabled={isStopping} onClick={stop}>Stop</button>}
        {!isOpen && state !== "finished" && <button type="button" class="primary" onClick={resume}>Resume</button>}
        {!isOpen && again && <button type="button" onClick={() => goTo(again)}>Change and run again</button>}
        <RunLink id={run.id} isShared={run.shared ?? false} />
      </div>}
    </>
  );
}

function progressText(state: RunState, done: number, total: number, id: string, queue: RunQueue | null): string {
  if (state === "queued") {
    const place = queue?.queued.find((it) => it.id === id)?.place;
    const wait = queue?.seconds_left != null ? ` The run that runs now takes about ${duration(queue.seconds_left)}.` : "";
    return place !== undefined ? `Waits in place ${place}, because only one run measures at a time.${wait}` : "Waits for other runs.";
  }
  const left = queue?.running?.id === id && queue.seconds_left != null ? `, about ${duration(queue.seconds_left)} left` : "";
  return `${count(done)} of ${count(total)} trials are done${left}`;
}
