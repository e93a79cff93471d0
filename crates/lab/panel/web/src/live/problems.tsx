import { duration, moment } from "../format";
import type { LiveProblem } from "./types";

/** What is wrong, since when, and what to do. */
export function Problems({ problems }: { problems: LiveProblem[] }) {
  return (
    <ul class="problems">
      {problems.map((problem) => (
        <li key={problem.text}>
          <p>
            <b><span aria-hidden="true">⚠ </span>{problem.text}</b>
            {problem.since != null && <span class="since"> {sinceText(problem.since)}</span>}
          </p>
          <p class="remedy">{problem.remedy}</p>
        </li>
      ))}
    </ul>
  );
}

function sinceText(since: number | string): string {
  return typeof since === "number" ? `for ${duration(since)}` : `since ${moment(since)}`;
}
