import { oneIn, percent, short } from "../format";
import type { Property } from "./types";

/** A property as the command prints it. */
export function propertyText(property: Property, value: number): string {
  switch (property) {
    case "risk":
    case "loss":
      return percent(value);
    case "delay":
      return `${short(value)} ms`;
    case "rate":
      return `${short(value)} Mbit/s`;
  }
}

/** The same in other words, if there are any. */
export function propertyNote(property: Property, value: number): string {
  const what = { risk: "is read", loss: "is lost", delay: "", rate: "" }[property];
  if (!what) return "";
  return value > 0 ? `${oneIn(value)} symbols ${what}` : `no symbol ${what}`;
}
