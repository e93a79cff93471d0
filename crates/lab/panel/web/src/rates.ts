// Rates of links from the samples of what they have carried.

export interface Sample {
  time_s: number;
  links: Record<string, [number, number]>;
}

export interface RateCurve {
  link: string;
  /** 0 from the first host to the second, 1 back. */
  direction: 0 | 1;
  /** In Mbit/s, for each time. */
  mbit: number[];
}

export interface Rates {
  /** 0, and then the end of each interval, in seconds. */
  times: number[];
  curves: RateCurve[];
}

/**
 * The mean rate between two samples each, of each link and direction. It is 0 at the start, when
 * the links have carried nothing.
 */
export function ratesOf(samples: Sample[]): Rates {
  // Samples with the time of the one before have no rate.
  const kept: Sample[] = [{ time_s: 0, links: {} }];
  for (const sample of samples) if (sample.time_s > kept.at(-1)!.time_s) kept.push(sample);
  const links = [...new Set(kept.flatMap((sample) => Object.keys(sample.links)))];
  const curves = links.flatMap((link) => [curveOf(kept, link, 0), curveOf(kept, link, 1)]);
  return { times: kept.map((sample) => sample.time_s), curves };
}

function curveOf(samples: Sample[], link: string, direction: 0 | 1): RateCurve {
  const mbit = samples.map((sample, i) => {
    const before = samples[i - 1];
    if (!before) return 0;
    const bytes = (sample.links[link]?.[direction] ?? 0) - (before.links[link]?.[direction] ?? 0);
    return (Math.max(0, bytes) * 8e-6) / (sample.time_s - before.time_s);
  });
  return { link, direction, mbit };
}

/** The rate of all links and directions together. */
export function totalRate(rates: Rates): number[] {
  return rates.times.map((_, i) => rates.curves.reduce((sum, curve) => sum + curve.mbit[i]!, 0));
}

/** How much all links have carried, in bytes. */
export function carriedBytes(samples: Sample[]): number {
  const carried = Object.values(samples.at(-1)?.links ?? {});
  return carried.reduce((total, [there, back]) => total + there + back, 0);
}
