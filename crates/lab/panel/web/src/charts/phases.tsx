// What each party does, as bars over time that grow while the trial runs.
import { Fragment } from "preact";
import { useEffect, useReducer } from "preact/hooks";
import { bytes, quantity } from "../format";
import { PHASES, type PhaseBar, type TrialProgress, axisEnd, partiesOf, phasesOf } from "../progress";

/** The time between two pictures while bars grow, in ms. */
const STEP_MS = 100;

interface Props {
  /** One or more, which have the same time axis. */
  trials: TrialProgress[];
  /** Whether the run goes on. */
  isRunning: boolean;
  nameOf: (trial: TrialProgress) => string;
}

export function PhaseBars({ trials, isRunning, nameOf }: Props) {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const now_ms = isRunning ? performance.now() : null;
  const shown = trials.map((trial) => ({ trial, bars: phasesOf(trial, now_ms) })).filter(({ bars }) => bars.length > 0);
  const isGrowing = isRunning && shown.some(({ trial, bars }) => trial.record === null && bars.some((bar) => bar.isOpen));
  useEffect(() => {
    if (!isGrowing) return;
    const timer = window.setInterval(() => draw(undefined), STEP_MS);
    return () => window.clearInterval(timer);
  }, [isGrowing]);
  if (shown.length === 0) return null;
  const end_s = Math.max(...shown.map(({ bars }) => axisEnd(bars)));
  return (
    <>
      <h3>Phases</h3>
      <figure class="chart">
        <div class="phases" role="img" aria-label="The phases of each party over time; the table below lists them">
          {shown.map(({ trial, bars }) => (
            <Fragment key={trial.number}>
              {trials.length > 1 && <span class="phase-trial">{nameOf(trial)}</span>}
              {partiesOf(bars, trial).map((party) => (
                <PhaseRow key={party} party={party} bars={bars.filter((bar) => bar.party === party)} end_s={end_s} />
              ))}
            </Fragment>
          ))}
          <span />
          <div class="phase-axis">{[0, 0.5, 1].map((part) => <span key={part}>{quantity(part * end_s * 1000, "ms")}</span>)}</div>
        </div>
        <PhaseTable rows={shown.flatMap(({ trial, bars }) => bars.map((bar) => ({ ...bar, trial: nameOf(trial) })))} hasTrials={trials.length > 1} />
      </figure>
    </>
  );
}

function PhaseRow({ party, bars, end_s }: { party: string; bars: PhaseBar[]; end_s: number }) {
  const part = (seconds: number) => `${(100 * seconds) / end_s}%`;
  return (
    <>
      <span class="phase-party">{party}</span>
      <div class="phase-row">
        {bars.map((bar) => (
          <div
            key={`${bar.name} ${bar.start_s}`}
            class={`phase phase-${PHASES.indexOf(bar.name) + 1}${bar.isOpen ? " open" : ""}`}
            style={{ left: part(bar.start_s), width: part(bar.time_s) }}
            title={`${bar.name}: ${timeText(bar)}`}
          >
            <span>{bar.name}</span>
          </div>
        ))}
      </div>
    </>
  );
}

const timeText = (bar: PhaseBar) => `${quantity(bar.time_s * 1000, "ms")}${bar.isOpen ? " so far" : ""}`;

function PhaseTable({ rows, hasTrials }: { rows: (PhaseBar & { trial: string })[]; hasTrials: boolean }) {
  const hasBytes = rows.some((row) => row.bytes !== null);
  return (
    <details>
      <summary>Phases as a table</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="Phases">
        <table>
          <thead>
            <tr>
              {hasTrials && <th scope="col">trial</th>}
              <th scope="col">party</th>
              <th scope="col">phase</th>
              <th scope="col" class="number">begins</th>
              <th scope="col" class="number">takes</th>
              {hasBytes && <th scope="col" class="number">bytes</th>}
            </tr>
          </thead>
          <tbody>
            {rows.map((bar) => (
              <tr key={`${bar.trial} ${bar.party} ${bar.name} ${bar.start_s}`}>
                {hasTrials && <th scope="row" class="whole">{bar.trial}</th>}
                <td>{bar.party}</td>
                <td>{bar.name}</td>
                <td class="number">{quantity(bar.start_s * 1000, "ms")}</td>
                <td class="number">{timeText(bar)}</td>
                {hasBytes && <td class="number">{bar.bytes === null ? "–" : bytes(bar.bytes)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
