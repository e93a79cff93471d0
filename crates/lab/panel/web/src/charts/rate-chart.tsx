// The rate of the links while a trial runs.
import uPlot from "uplot";
import { short } from "../format";
import type { Sample } from "../rates";
import { ratesOf, totalRate } from "../rates";
import { LineChart } from "./line-chart";

interface TrialProps {
  samples: Sample[];
  /** The name of the trial, for the description. */
  name: string;
}

/** One line for each link and direction. */
export function TrialRates({ samples, name }: TrialProps) {
  const rates = ratesOf(samples);
  const lines = rates.curves.map((curve) => ({
    label: `link ${curve.link}, ${curve.direction === 0 ? "forward" : "back"}`,
    ys: curve.mbit,
  }));
  return <RateLines xs={rates.times} lines={lines} description={`The rate of each link during ${name}`} />;
}

interface OverlayProps {
  curves: { label: string; samples: Sample[] }[];
}

/** One line for each trial: all links and directions together. */
export function OverlaidRates({ curves }: OverlayProps) {
  const tables = curves.map(({ samples }) => {
    const rates = ratesOf(samples);
    return [rates.times, totalRate(rates)] as uPlot.AlignedData;
  });
  const joined = uPlot.join(tables);
  const lines = curves.map(({ label }, i) => ({ label, ys: joined[i + 1] as (number | null)[] }));
  const description = "The rate of all links together, for each trial";
  return <RateLines xs={joined[0] as number[]} lines={lines} description={description} />;
}

interface LinesProps {
  xs: number[];
  lines: { label: string; ys: (number | null | undefined)[] }[];
  description: string;
}

function RateLines({ xs, lines, description }: LinesProps) {
  return (
    <LineChart
      description={description}
      xs={xs}
      lines={lines}
      xLabel="seconds since the start of the trial"
      yLabel="Mbit/s"
      xScale="linear"
      yScale="linear"
      hasMarks={false}
      height={260}
      valueAt={(line, index) => {
        const value = lines[line]?.ys[index];
        return value == null ? null : `${short(Math.round(value * 10) / 10)} Mbit/s`;
      }}
    />
  );
}
