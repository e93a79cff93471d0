import { SERIES } from "../theme";
import { dashOf, markPath } from "./marks";

interface Props {
  labels: string[];
  /** The values at the cursor, in the order of the labels. */
  values?: (string | null)[] | null;
  hasMarks: boolean;
}

/** Names the lines of a chart, each with its colour, dashes and mark. */
export function Legend({ labels, values, hasMarks }: Props) {
  return (
    <ul class="legend">
      {labels.map((label, line) => (
        <li key={label}>
          <svg viewBox="0 0 30 12" width="30" height="12" class={`series-${(line % SERIES) + 1}`} aria-hidden="true">
            <path d="M0 6H30" stroke="currentColor" stroke-width="2" stroke-dasharray={dashOf(line).join(" ")} />
            {hasMarks && <path d={markPath(line, 15, 6, 4)} fill="currentColor" />}
          </svg>
          {label}
          {values?.[line] != null && <b> {values[line]}</b>}
        </li>
      ))}
    </ul>
  );
}
