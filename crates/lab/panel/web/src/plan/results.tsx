// The properties of a plan, its schedule, and what is left without each channel.
import { percent, short } from "../format";
import { PROPERTIES, type PlanDocument } from "./types";
import { propertyNote, propertyText } from "./words";

export function PlanProperties({ plan, isOld }: { plan: PlanDocument; isOld: boolean }) {
  return (
    <dl class={isOld ? "properties old" : "properties"}>
      {PROPERTIES.map(({ name, label }) => (
        <div key={name}>
          <dt>{label}</dt>
          <dd>
            <b>{plan[name] === undefined ? "–" : propertyText(name, plan[name])}</b>
            <span class="hint">{plan[name] !== undefined && propertyNote(name, plan[name])}</span>
          </dd>
        </div>
      ))}
      {plan.kappa !== undefined && plan.mu !== undefined && (
        <div>
          <dt>kappa, mu</dt>
          <dd><b>{short(plan.kappa)}, {short(plan.mu)}</b></dd>
        </div>
      )}
    </dl>
  );
}

export function ScheduleTable({ plan }: { plan: PlanDocument }) {
  if (!plan.schedule) return null;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of the schedule">
      <table class="schedule">
        <thead>
          <tr>
            <th scope="col" class="number">symbols</th>
            <th scope="col" class="number">k</th>
            <th scope="col" class="number">m</th>
            {plan.names.map((name, i) => <th key={i} scope="col" class="uses">{name}</th>)}
          </tr>
        </thead>
        <tbody>
          {plan.schedule.map((entry) => (
            <tr key={`${entry.k} ${entry.channels}`}>
              <td class="number">{percent(entry.p)}</td>
              <td class="number">{entry.k}</td>
              <td class="number">{entry.channels.length}</td>
              {plan.names.map((_, i) => <td key={i} class="uses">{entry.channels.includes(i) ? <><span aria-hidden="true">●</span><span class="hidden">used</span></> : ""}</td>)}
            </tr>
          ))}
        </tbody>
        {plan.utilisation && (
          <tfoot>
            <tr>
              <th scope="row" colSpan={3}>rate that is used</th>
              {plan.utilisation.map((used, i) => <td key={i} class="uses">{percent(Number(used.toFixed(3)))}</td>)}
            </tr>
          </tfoot>
        )}
      </table>
    </div>
  );
}

export function LeaveOneOutTable({ plan }: { plan: PlanDocument }) {
  if (plan.leave_one_out.length === 0) return null;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of the plans without one channel">
      <table>
        <thead>
          <tr><th scope="col">without</th>{PROPERTIES.map(({ name, label }) => <th key={name} scope="col" class="number">{label.toLowerCase()}</th>)}</tr>
        </thead>
        <tbody>
          {plan.leave_one_out.map((left, i) => (
            <tr key={i}>
              <th scope="row">{left.without}</th>
              {"error" in left ? (
                <td colSpan={4} class="hint">{left.error}</td>
              ) : (
                PROPERTIES.map(({ name }) => <td key={name} class="number">{propertyText(name, name === "delay" ? left.delay_ms : left[name])}</td>)
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
