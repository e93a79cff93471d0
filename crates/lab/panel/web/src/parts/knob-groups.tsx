// The settings of a template: what runs, how, and where.
import { type KnobValue, type KnobValues, type NetworkPreset, type Template } from "../types";
import { ChipsField } from "./chips-field";
import { ChoiceField } from "./choice-field";
import { NumberField } from "./number-field";

interface Props {
  templates: Template[];
  template: Template;
  networks: NetworkPreset[];
  values: KnobValues;
  /** Whether each knob can have several values. */
  isSweep: boolean;
  onTemplate: (template: Template) => void;
  onChange: (values: KnobValues) => void;
  /** The knob that the server refused, and why. */
  refused: { field: string; error: string } | null;
}

const GROUPS = [
  ["what", "What"],
  ["how", "How"],
  ["where", "Where"],
] as const;

export function KnobGroups(props: Props) {
  const { template, templates, networks, values, onChange } = props;
  return (
    <div class={props.isSweep ? "groups sweep" : "groups"}>
      {GROUPS.map(([group, heading]) => (
        <section key={group} class={`card group-${group}`} aria-labelledby={`group-${group}`}>
          <h2 id={`group-${group}`}>{heading}</h2>
          {group === "what" && <TemplateChoice templates={templates} template={template} onTemplate={props.onTemplate} />}
          {group === "where" && <NetworkButtons {...{ networks, values, onChange }} />}
          {template.knobs.filter((knob) => knob.group === group).map((knob) => (
            <KnobField key={`${template.name} ${knob.name}`} {...props} knobName={knob.name} />
          ))}
        </section>
      ))}
    </div>
  );
}

function TemplateChoice({ templates, template, onTemplate }: Pick<Props, "templates" | "template" | "onTemplate">) {
  const choose = (name: string) => {
    const chosen = templates.find((it) => it.name === name);
    if (chosen) onTemplate(chosen);
  };
  return (
    <div class="field">
      <label for="template">Application</label>
      <select id="template" value={template.name} onChange={(event) => choose(event.currentTarget.value)}>
        {templates.map(({ name, title }) => <option key={name} value={name}>{title}</option>)}
      </select>
      <p class="hint">{template.about}</p>
    </div>
  );
}

/** Networks whose values fill the knobs. */
function NetworkButtons({ networks, values, onChange }: Pick<Props, "networks" | "values" | "onChange">) {
  const usable = networks.filter((network) => Object.keys(network.values).some((name) => name in values));
  const apply = (network: NetworkPreset) => {
    const known = Object.entries(network.values).filter(([name]) => name in values);
    onChange({ ...values, ...Object.fromEntries(known.map(([name, value]) => [name, [value]])) });
  };
  const isApplied = (network: NetworkPreset) =>
    Object.entries(network.values).every(([name, value]) => !(name in values) || (values[name]!.length === 1 && values[name]![0] === value));
  if (usable.length === 0) return null;
  return (
    <div class="field" role="group" aria-label="Networks">
      <div class="options">
        {usable.map((network) => (
          <button key={network.name} type="button" class="toggle" aria-pressed={isApplied(network)} title={network.about} onClick={() => apply(network)}>
            {network.name}
          </button>
        ))}
      </div>
    </div>
  );
}

function KnobField({ template, values, isSweep, onChange, refused, knobName }: Props & { knobName: string }) {
  const knob = template.knobs.find((it) => it.name === knobName)!;
  const own = values[knobName] ?? [];
  const set = (list: KnobValue[]) => onChange({ ...values, [knobName]: list });
  return (
    <>
      {knob.kind === "choice" ? (
        <ChoiceField knob={knob} values={own} several={isSweep || knob.multiple} onChange={set} />
      ) : isSweep ? (
        <ChipsField knob={knob} values={own} onChange={set} />
      ) : (
        <NumberField knob={knob} value={Number(own[0])} onChange={(value) => set([value])} />
      )}
      {refused?.field === knobName && <p class="error" role="alert">{refused.error}</p>}
    </>
  );
}
