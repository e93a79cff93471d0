// The applications that can be run, one of which is chosen.
import type { Template } from "../types";

interface Props {
  templates: Template[];
  chosen: Template;
  onChoose: (template: Template) => void;
}

export function ApplicationList({ templates, chosen, onChoose }: Props) {
  return (
    <section class="card" aria-labelledby="application-title">
      <h2 id="application-title">Application</h2>
      <div class="application-list" role="radiogroup" aria-labelledby="application-title">
        {templates.map((template) => (
          <label key={template.name} class="application">
            <input
              type="radio"
              name="application"
              value={template.name}
              checked={template.name === chosen.name}
              aria-labelledby={`application-${template.name}`}
              aria-describedby={`about-${template.name}`}
              onChange={() => onChoose(template)}
            />
            <b id={`application-${template.name}`}>{template.title}</b>
            <span id={`about-${template.name}`} class="hint">{template.about}</span>
          </label>
        ))}
      </div>
      <p class="hint chosen-about" aria-hidden="true">{chosen.about}</p>
    </section>
  );
}
