// Two or more runs over each other.
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../api";
import { OverlaidRates } from "../charts/rate-chart";
import { followRun } from "../events";
import { moment, quantity } from "../format";
import { ErrorLine, StateBadge, ViewHeading } from "../parts/basics";
import { labelsOf } from "../parts/labels";
import { useLoaded } from "../parts/load";
import { SeriesChart, isWide } from "../parts/sweep-chart";
import { predictionWord } from "../predictions";
import type { Sample } from "../rates";
import { type ChartSeries, completed, initialChoice, median, pointsOf, seriesOf, variedKeys } from "../series";
import { SERIES } from "../theme";
import type { KnobValue, RunDetails, Template } from "../types";

/** How many curves are drawn over each other. */
const MAX_CURVES = SERIES;

export function CompareView({ ids }: { ids: string[] }) {
  const loaded = useLoaded(() => Promise.all([api.templates(), ...ids.map(api.run)]), [ids.join()]);
  if (!loaded.data) return <ErrorLine text={loaded.error} />;
  const [templates, ...runs] = loaded.data as [Template[], ...RunDetails[]];
  return (
    <>
      <ViewHeading about="The curves of several runs over each other.">Compare</ViewHeading>
      <div class="scroll" tabIndex={0} role="region" aria-label="The runs">
        <table>
          <thead>
            <tr><th scope="col">letter</th><th scope="col">run</th><th scope="col">state</th><th scope="col">settings that differ</th><th scope="col" class="number">median</th><th scope="col">note</th></tr>
          </thead>
          <tbody>
            {runs.map((run, i) => (
              <tr key={run.id}>
                <td><b>{letter(i)}</b></td>
                <td><a href={`#/run/${run.id}`}>{run.title}</a><div class="hint">{moment(run.created)}</div></td>
                <td><StateBadge state={run.state} /></td>
                <td>{differences(run, runs, templates)}</td>
                <td class="number">{medianOf(run)}</td>
                <td>{run.note}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ComparedSweeps runs={runs} templates={templates} />
      <ComparedRates runs={runs} templates={templates} />
    </>
  );
}

const letter = (index: number) => String.fromCharCode(65 + index);

function medianOf(run: RunDetails): string {
  const value = run.values[0];
  const measured = run.trials.filter((trial) => !trial.invalid).flatMap((trial) => trial.values[value?.name ?? ""] ?? []);
  const middle = median(measured);
  return value && middle !== null ? quantity(middle, value.unit) : "–";
}

/** The keys whose values are not the same in all runs. */
function differences(run: RunDetails, runs: RunDetails[], templates: Template[]): string {
  const labels = labelsOf(templates, run.request);
  const values = (it: RunDetails, key: string) => [...new Set(pointsOf(it.request, it.trials).map(({ point }) => point[key] ?? "–"))];
  const own = run.keys.map((key) => [key, values(run, key)] as const);
  const differing = own.filter(([key, list]) => runs.some((other) => values(other, key).join() !== list.join()));
  return differing.map(([name, values]) => `${labels.key(name)}: ${values.map((value) => labels.value(name, value)).join(", ")}`).join("; ") || "none";
}

/** The charts of all runs in one, if they have an axis in common. */
function ComparedSweeps({ runs, templates }: { runs: RunDetails[]; templates: Template[] }) {
  const merged = useMemo(() => mergedSeries(runs, templates), [runs]);
  if (!merged) return <p class="empty">These runs have no measured quantity and setting in common that could be drawn in one chart.</p>;
  const { series, x, tick, y, unit } = merged;
  const prediction = predictionWord(runs[0]?.values[0]);
  return (
    <section class="card" aria-labelledby="compared-title">
      <h2 id="compared-title">{y} by {x}</h2>
      <SeriesChart series={series} tick={tick} description={`${y} by ${x} in each run`} xLabel={x} yLabel={unit ? `${y} (${unit})` : y} unit={unit} yScale={isWide(series) ? "log" : "linear"} prediction={prediction} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Values">
        <table>
          <thead>
            <tr><th scope="col">{x}</th>{series.lines.map((line) => <th key={line.label} scope="col" class="number">{line.label}</th>)}</tr>
          </thead>
          <tbody>
            {series.xs.map((value, i) => (
              <tr key={value}>
                <th scope="row">{tick(value)}</th>
                {series.lines.map((line) => {
                  const point = line.points[i];
                  const shown = point?.value ?? point?.invalid;
                  return <td key={line.label} class="number">{shown == null ? "–" : quantity(shown, unit)}{point && point.value === null && " (invalid)"}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface MergedSeries {
  series: ChartSeries;
  x: string;
  tick: (value: KnobValue) => string;
  y: string;
  unit: string;
}

function mergedSeries(runs: RunDetails[], templates: Template[]): MergedSeries | null {
  const all = runs.flatMap((run) => run.trials);
  const y = runs[0]?.values[0];
  const varied = variedKeys(all);
  // A key that varies within each run is a better axis than one that differs between them.
  const within = new Map([...varied].filter(([key]) => runs.every((run) => variedKeys(run.trials).has(key))));
  const first = initialChoice(within.size > 0 ? within : varied, runs[0]?.plots ?? [], y?.name ?? "");
  const x = first?.x ?? Object.keys(all[0]?.point ?? {})[0];
  if (!y || x === undefined || !runs.every((run) => run.trials.some((trial) => x in trial.point && y.name in trial.values))) return null;
  // A key that is the same everywhere is still an axis: the runs themselves are the lines.
  const axis = new Map(varied).set(x, varied.get(x) ?? [all[0]!.point[x]!]);
  const lines = runs.flatMap((run, i) => {
    const own = variedKeys(run.trials);
    own.set(x, axis.get(x)!);
    const lineKey = [...own.keys()].find((key) => key === first?.lines) ?? [...own.keys()].find((key) => key !== x) ?? null;
    const choice = completed({ x, y: y.name, lines: lineKey, fixed: {} }, own);
    const labels = labelsOf(templates, run.request);
    const series = seriesOf(run.trials, choice, own, labels.value);
    return series.lines.map((line) => ({ ...line, label: lineKey ? `${letter(i)}: ${line.label}` : letter(i) }));
  });
  const labels = labelsOf(templates, runs[0]!.request);
  return { series: { xs: axis.get(x)!, lines }, x: labels.key(x), tick: (value) => labels.value(x, value), y: y.name, unit: y.unit };
}

interface RateCurve {
  label: string;
  samples: Sample[];
}

/** The rates while the trials ran, from the events of the runs. */
function ComparedRates({ runs, templates }: { runs: RunDetails[]; templates: Template[] }) {
  const [curves, setCurves] = useState<Record<string, RateCurve[]>>({});
  useEffect(() => {
    const ends = runs.map((run, i) =>
      followRun(run.id, (progress) => {
        const labels = labelsOf(templates, run.request);
        const own = [...progress.trials.values()];
        const keys = [...variedKeys(own).keys()];
        const label = (point: (typeof own)[number]["point"], number: number) =>
          `${letter(i)}: ${keys.map((key) => labels.value(key, point[key]!)).join(", ") || `trial ${number}`}`;
        setCurves((before) => ({ ...before, [run.id]: own.map((it) => ({ label: label(it.point, it.number), samples: it.samples })) }));
      }),
    );
    return () => ends.forEach((end) => end());
  }, [runs]);
  const all = runs.flatMap((run) => (curves[run.id] ?? []).slice(0, Math.max(1, Math.floor(MAX_CURVES / runs.length))));
  const shown = all.filter((curve) => curve.samples.length > 1);
  if (shown.length === 0) return null;
  return (
    <section class="card" aria-labelledby="rates-title">
      <h2 id="rates-title">Rate while measuring</h2>
      <OverlaidRates curves={shown} />
      <p class="hint">All links and directions together, from the start of each trial.</p>
    </section>
  );
}
