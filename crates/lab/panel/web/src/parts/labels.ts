// The words for keys and values: those of the template, or else the names themselves.
import { useMemo } from "preact/hooks";
import { api } from "../api";
import { labelOf, settingsOf } from "../knobs";
import type { KnobValue, RunRequest, Template } from "../types";
import { useLoaded } from "./load";

export interface Labels {
  key: (name: string) => string;
  value: (name: string, value: KnobValue) => string;
  /** The settings in a few words, or in fewer. */
  settings: (isFull: boolean) => string;
}

export function useLabels(request: RunRequest | undefined): Labels {
  const { data } = useLoaded(api.templates, []);
  return useMemo(() => labelsOf(data ?? [], request), [data, request]);
}

export function labelsOf(templates: Template[], request: RunRequest | undefined): Labels {
  const name = request && "template" in request ? request.template : null;
  const template = templates.find((it) => it.name === name);
  const knob = (key: string) => template?.knobs.find((it) => it.name === key);
  return {
    key: (key) => {
      const found = knob(key);
      if (!found) return key;
      return found.kind === "number" && found.unit ? `${found.label} (${found.unit})` : found.label;
    },
    value: (key, value) => labelOf(knob(key), value),
    settings: (isFull) => (request && "template" in request ? settingsOf(template, request.values, isFull) : ""),
  };
}
