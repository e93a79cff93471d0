// One run: live while it measures, and its results afterwards.
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../api";
import { OverlaidRates, TrialRates } from "../charts/rate-chart";
import { PhaseBars } from "../charts/phases";
import { followRun } from "../events";
import { bytes, plural } from "../format";
import { CopyButton, ErrorLine, ViewHeading } from "../parts/basics";
import { type Labels, useLabels } from "../parts/labels";
import { useLoaded } from "../parts/load";
import { ResultTable, comparisonSentence } from "../parts/result-table";
import { RunHead } from "../parts/run-head";
import { SweepChart } from "../parts/sweep-chart";
import { TrialOutputs } from "../parts/trial-outputs";
import { TransportReasons } from "../parts/transport-reasons";
import { type RunProgress, type TrialProgress, recordsOf } from "../progress";
import { carriedBytes } from "../rates";
import { pointsOf, reasonOf, variedKeys } from "../series";
import { SERIES } from "../theme";
import { type RunDetails, type TrialRecord, isOver } from "../types";

export function WatchView({ id }: { id: string }) {
  const details = useLoaded(() => api.run(id), [id]);
  // The progress is changed in place; a new version shows it.
  const [shown, setShown] = useState<{ progress: RunProgress; version: number } | null>(null);
  const [resumed, setResumed] = useState(0);
  useEffect(() => {
    setShown(null);
    return followRun(id, (progress) => setShown((before) => ({ progress, version: (before?.version ?? 0) + 1 })));
  }, [id, resumed]);
  const state = shown?.progress.state ?? null;
  useEffect(() => {
    if (state && isOver(state)) details.reload();
  }, [state]);
  const resume = () => {
    details.reload();
    setResumed((count) => count + 1);
  };
  return (
    <>
      {details.error && !details.data && <ViewHeading>Run {id}</ViewHeading>}
      <ErrorLine text={details.error} />
      {details.data?.id === id && <RunContent run={details.data} shown={shown} onResumed={resume} />}
    </>
  );
}

interface ContentProps {
  run: RunDetails;
  shown: { progress: RunProgress; version: number } | null;
  onResumed: () => void;
}

function RunContent({ run, shown, onResumed }: ContentProps) {
  const labels = useLabels(run.request);
  const progress = shown?.progress ?? null;
  const state = progress?.state ?? run.state;
  const trials = useMemo(
    () => (isOver(state) && isOver(run.state) ? run.trials : progress ? recordsOf(progress) : []),
    [run, progress?.results, state],
  );
  const points = useMemo(() => pointsOf(run.request, trials), [run, trials]);
  const varied = useMemo(() => variedKeys(points), [points]);
  const keys = [...varied.keys()];
  const isSweep = keys.length > 1 || keys.some((key) => typeof varied.get(key)![0] === "number");
  const { values, plots, title } = run;
  const current = progress?.current ?? null;
  // Only results change it, not the samples that come ten times a second.
  const table = useMemo(
    () => <ResultTable trials={trials} values={values} keys={keys.length > 0 ? keys : Object.keys(trials[0]?.point ?? {}).slice(0, 1)} labels={labels} />,
    [trials, varied, labels],
  );
  return (
    <>
      <RunHead
        run={run}
        settings={labels.settings(true)}
        state={state}
        error={progress?.error ?? null}
        done={progress?.done ?? run.done}
        total={progress?.total || run.total}
        now={current?.name ?? null}
        isSweep={isSweep}
        onResumed={onResumed}
      />
      {isSweep && (
        <section class="card" aria-labelledby="chart-title">
          <h2 id="chart-title">{title}</h2>
          <SweepChart name={run.id} title={title} trials={trials} points={points} values={values} plots={plots} labels={labels} origin={originOf(run)} />
        </section>
      )}
      {current && <Curves progress={progress!} keys={keys} labels={labels} isOver={isOver(state)} />}
      {current && <TrialOutputs trial={current} name={current.name} />}
      {trials.length > 0 && (
        <section class="card" aria-labelledby="results-title">
          <h2 id="results-title">Results</h2>
          <Sentences trials={trials} run={run} keys={keys} labels={labels} />
          {table}
          <TransportReasons trials={trials} keys={keys} labels={labels} />
        </section>
      )}
      <Origin run={run} />
    </>
  );
}

function Sentences({ trials, run, keys, labels }: { trials: TrialRecord[]; run: RunDetails; keys: string[]; labels: Labels }) {
  const comparison = keys.length === 1 ? comparisonSentence(trials, run.values, keys, labels) : null;
  const isInvalid = trials.every((trial) => trial.invalid);
  return (
    <>
      {isInvalid && <p class="sentence wrong">No trial is valid: {reasonOf(trials[0]!)}. Run nothing else meanwhile, or choose lower rates.</p>}
      {comparison && <p class="sentence">{comparison}</p>}
    </>
  );
}

interface CurvesProps {
  progress: RunProgress;
  keys: string[];
  labels: Labels;
  isOver: boolean;
}

/** How many trials can be chosen. */
const MAX_LISTED = 100;

/** The rate of the links: of the trial that runs, or of all. */
function Curves({ progress, keys, labels, isOver: over }: CurvesProps) {
  const all = [...progress.trials.values()];
  const [chosen, setChosen] = useState<string | null>(null);
  const hasSeveral = all.length > 1;
  const selected = chosen ?? (over && hasSeveral && all.length <= SERIES ? "all" : "latest");
  const trial = selected === "latest" ? progress.current! : progress.trials.get(Number(selected));
  const name = (it: TrialProgress) => {
    const point = keys.map((key) => labels.value(key, it.point[key] ?? "–")).join(", ");
    return point ? `${it.number}: ${point}` : `trial ${it.number}`;
  };
  return (
    <section class="card" aria-labelledby="curve-title">
      <h2 id="curve-title">Rate</h2>
      {hasSeveral && (
        <div class="toolbar">
          <label>
            Trial
            <select value={selected} onChange={(event) => setChosen(event.currentTarget.value)}>
              <option value="latest">{over ? "the last one" : "the one that runs"}</option>
              <option value="all">{all.length > SERIES ? `the last ${SERIES} over each other` : "all over each other"}</option>
              {all.slice(-MAX_LISTED).map((it) => <option key={it.number} value={String(it.number)}>{name(it)}</option>)}
            </select>
          </label>
        </div>
      )}
      {trial ? (
        <>
          <TrialRates samples={[...trial.samples]} name={trial.name} />
          <p class="hint">{name(trial)}. {bytes(carriedBytes(trial.samples))} over all links, headers of packets included.</p>
          <PhaseBars key={trial.number} trials={[trial]} isRunning={!over} nameOf={name} />
        </>
      ) : (
        <>
          <OverlaidRates curves={all.slice(-SERIES).map((it) => ({ label: name(it), samples: it.samples }))} />
          <p class="hint">All links and directions together.</p>
          <PhaseBars trials={all.slice(-SERIES)} isRunning={!over} nameOf={name} />
        </>
      )}
    </section>
  );
}

/** The seed that was used; one that is not given is 1. */
function seedOf({ seed, request }: RunDetails): number | undefined {
  return seed ?? ("template" in request ? request.seed ?? 1 : undefined);
}

function originOf(run: RunDetails): string {
  const { machine } = run;
  const seed = seedOf(run);
  if (!machine) return run.id;
  const revision = machine.revision ? ` (${machine.revision})` : "";
  return `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}; sunder ${machine.sunder}${revision}${seed === undefined ? "" : `; seed ${seed}`}; run ${run.id}`;
}

/** The machine, and the files. */
function Origin({ run }: { run: RunDetails }) {
  const files = ["results.csv", "results.json"];
  return (
    <section class="origin" aria-labelledby="origin-title">
      <h2 id="origin-title">Files and machine</h2>
      <p class="buttons">
        <CopyButton text={() => api.file(run.id, run.file)}>Copy .toml</CopyButton>
        <a class="button" href={api.filePath(run.id, run.file)} download>{run.file}</a>
        {run.trials.length > 0 && files.map((name) => <a key={name} class="button" href={api.filePath(run.id, name)} download>{name}</a>)}
      </p>
      {run.machine && <p class="hint">{originOf(run)}. {plural(run.machine.memory_gib, "GiB", "GiB")} of memory, default congestion control {run.machine.congestion}.</p>}
    </section>
  );
}
