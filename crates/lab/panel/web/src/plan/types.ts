// The documents of a plan.

export interface PlanChannel {
  name: string;
  /** The probability that a share is seen. */
  risk: number;
  /** The probability that a share is lost. */
  loss: number;
  /** One way. */
  delay_ms: number;
  /** In Mbit/s. */
  rate: number;
}

export type Property = "risk" | "loss" | "delay" | "rate";

/** Either kappa and mu, or an objective with bounds. */
export interface PlanBounds {
  kappa?: number;
  mu?: number;
  objective?: "privacy" | "loss" | "delay" | "rate";
  max_risk?: number;
  max_loss?: number;
  max_delay?: number;
  min_rate?: number;
}

export interface PlanRequest extends PlanBounds {
  channels: PlanChannel[];
}

export interface PlanEntry {
  k: number;
  /** Their places in the request, from 0. */
  channels: number[];
  p: number;
}

export interface PlanDocument {
  names: string[];
  kappa?: number;
  mu?: number;
  rate?: number;
  risk?: number;
  loss?: number;
  delay?: number;
  schedule?: PlanEntry[];
  /** The fraction of each channel's rate that is used. */
  utilisation?: number[];
  toml: string | null;
  leave_one_out: LeftOut[];
}

export type LeftOut =
  | { without: string; error: string }
  | { without: string; risk: number; loss: number; delay_ms: number; rate: number };

export interface Surface {
  kappa: number[];
  mu: number[];
  /** A row for each mu with a value for each kappa; null where kappa is more than mu. */
  values: (number | null)[][];
}

export interface FrontPoint {
  x: number;
  y: number;
}

export const PROPERTIES: { name: Property; label: string; unit: string }[] = [
  { name: "risk", label: "Risk", unit: "" },
  { name: "loss", label: "Loss", unit: "" },
  { name: "delay", label: "Delay", unit: "ms" },
  { name: "rate", label: "Rate", unit: "Mbit/s" },
];
