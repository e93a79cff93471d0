// Rates of links from the samples of what they have carried.

export interface Sample {
  time_s: number;
  links: Record<string, [number, number]>;
}

export interface RateCurve {
  link: string;
  /** 0 from the first host to the second, 1 back. */
  direction: 0 | 1;
  /** In Mbit/s, for each sample but the first. */
  mbit: number[];
}

export interface Rates {
  /** The end of each interval, in seconds. */
  times: number[];
  curves: RateCurve[];
}

/** The mean rate between two samples each, of each link and direction. */
export function ratesOf(samples: Sample[]): Rates {
  // Samples with the time of the one before have no rate.
  const kept = samples.filter((sample, i) => i === 0 || sample.time_s > samples[i - 1]!.time_s);
  const links = [...new Set(kept.flatMap((sample) => Object.keys(sample.links)))];
  const curves = links.flatMap((link) => [curveOf(kept, link, 0), curveOf(kept, link, 1)]);
  return { times: kept.slice(1).map((sample) => sample.time_s), curves };
}

function curveOf(samples: Sample[], link: string, direction: 0 | 1): RateCurve {
  const mbit = samples.slice(1).map((sample, i) => {
    const before = samples[i]!;
    const bytes = (sample.links[link]?.[direction] ?? 0) - (before.links[link]?.[direction] ?? 0);
    return (Math.max(0, bytes) * 8e-6) / (sample.time_s - before.time_s);
  });
  return { link, direction, mbit };
}

/** The rate of all links and directions together. */
export function totalRate(rates: Rates): number[] {
  return rates.times.map((_, i) => rates.curves.reduce((sum, curve) => sum + curve.mbit[i]!, 0));
}

/** How much all links have carried, in bytes, since the first sample. */
export function carriedBytes(samples: Sample[]): number {
  const sum = (sample: Sample | undefined) =>
    Object.values(sample?.links ?? {}).reduce((total, [there, back]) => total + there + back, 0);
  return sum(samples.at(-1)) - sum(samples[0]);
}
