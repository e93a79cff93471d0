// The settings of a template: what runs, how, and where.
import { useLayoutEffect, useRef } from "preact/hooks";
import { type FileChoice, type FileChoices, replacedKnobs } from "../files";
import { presetValues } from "../knobs";
import type { KnobValue, KnobValues, NetworkPreset, Template } from "../types";
import { ArchiveField } from "./archive-field";
import { ChipsField } from "./chips-field";
import { ChoiceField } from "./choice-field";
import { FileField } from "./file-field";
import { NumberField } from "./number-field";

interface Props {
  template: Template;
  networks: NetworkPreset[];
  values: KnobValues;
  files: FileChoices;
  /** The names of the files that an earlier run had, by knob. */
  earlierFiles: Record<string, string>;
  /** Whether each knob can have several values. */
  isSweep: boolean;
  onValues: (values: KnobValues) => void;
  onFiles: (files: FileChoices) => void;
  /** The knob that the server refused, and why. */
  refused: { field: string; error: string } | null;
}

const GROUPS = [
  ["what", "What"],
  ["how", "How"],
  ["where", "Where"],
] as const;

export function KnobGroups(props: Props) {
  const { template, networks, values, onValues } = props;
  const all = GROUPS.map(([group, heading]) => ({ group, heading, knobs: template.knobs.filter((knob) => knob.group === group) }));
  const groups = all.filter(({ knobs }) => knobs.length > 0);
  // In a sweep, the first two are beside each other.
  const isAlone = (group: string) => group === "where" || groups.filter((it) => it.group !== "where").length === 1;
  return (
    <div class={props.isSweep ? "groups sweep" : "groups"}>
      {groups.map(({ group, heading, knobs }) => (
        <section key={group} class={`card group-${group}${isAlone(group) ? " alone" : ""}`} aria-labelledby={`group-${group}`}>
          <h2 id={`group-${group}`}>{heading}</h2>
          {group === "where" && <NetworkButtons {...{ template, networks, values, onValues }} />}
          {knobs.map((knob) => (
            <KnobField key={`${template.name} ${knob.name}`} {...props} knobName={knob.name} />
          ))}
        </section>
      ))}
    </div>
  );
}

/** Networks whose values fill the knobs. */
function NetworkButtons({ template, networks, values, onValues }: Pick<Props, "template" | "networks" | "values" | "onValues">) {
  const usable = networks.flatMap((network) => {
    const preset = presetValues(network, template);
    return preset ? [{ network, preset }] : [];
  });
  const isApplied = (preset: KnobValues) => Object.entries(preset).every(([name, list]) => values[name]?.join() === list.join());
  if (usable.length === 0) return null;
  return (
    <div class="field" role="group" aria-label="Networks">
      <div class="options">
        {usable.map(({ network, preset }) => (
          <button key={network.name} type="button" class="toggle" aria-pressed={isApplied(preset)} title={network.about} onClick={() => onValues({ ...values, ...preset })}>
            {network.name}
          </button>
        ))}
      </div>
    </div>
  );
}

function KnobField({ template, values, files, earlierFiles, isSweep, onValues, onFiles, refused, knobName }: Props & { knobName: string }) {
  const knob = template.knobs.find((it) => it.name === knobName)!;
  const own = values[knobName] ?? [];
  const set = (list: KnobValue[]) => onValues({ ...values, [knobName]: list });
  const setFile = (choice: FileChoice) => onFiles({ ...files, [knobName]: choice });
  const error = refused?.field === knobName ? refused.error : null;
  if (replacedKnobs(template, files).includes(knobName)) return null;
  return (
    <>
      {knob.kind === "archive" ? (
        <ArchiveField knob={knob} choice={files[knobName] ?? null} earlier={earlierFiles[knobName] ?? null} isRefused={error !== null} onChange={setFile} />
      ) : knob.kind === "file" ? (
        <FileField knob={knob} choice={files[knobName] ?? null} earlier={earlierFiles[knobName] ?? null} isRefused={error !== null} onChange={setFile} />
      ) : knob.kind === "choice" ? (
        <ChoiceField knob={knob} values={own} several={isSweep || knob.multiple} onChange={set} />
      ) : isSweep ? (
        <ChipsField knob={knob} values={own} onChange={set} />
      ) : (
        <NumberField knob={knob} value={Number(own[0])} onChange={(value) => set([value])} />
      )}
      {error && <RefusedValue key={error} text={error} />}
    </>
  );
}

/** Why the server refused a value. It is brought into view, because the button is elsewhere. */
function RefusedValue({ text }: { text: string }) {
  const line = useRef<HTMLParagraphElement>(null);
  useLayoutEffect(() => line.current!.scrollIntoView({ block: "center" }), []);
  return <p ref={line} class="error" role="alert">{text}</p>;
}
