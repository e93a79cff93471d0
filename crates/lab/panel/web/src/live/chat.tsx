// The groups of a chat proxy.
import { short } from "../format";
import type { ChatGroupStatus } from "./types";

/** How many members are drawn as dots. */
const MAX_DOTS = 200;

export function ChatGroups({ groups }: { groups: ChatGroupStatus[] }) {
  return (
    <>
      {groups.map((group) => (
        <section key={group.name} class="chat-group" aria-label={`Group ${group.name}`}>
          <h3>{group.name}</h3>
          {group.members <= MAX_DOTS && (
            <p class="dots" aria-hidden="true">
              {Array.from({ length: group.members }, (_, i) => (
                <span key={i} class={i < group.participants ? "dot in-round" : i < group.connected ? "dot connected" : "dot"} />
              ))}
            </p>
          )}
          <p>
            <b>{short(group.participants)}</b> of {short(group.members)} members took part in the last round, {short(group.connected)} are connected
            {group.late_members > 0 && `, ${short(group.late_members)} late`}.
          </p>
          <dl class="facts">
            <div><dt>Round</dt><dd>{short(group.round)}, open for {short(Math.round(group.round_ms))} ms</dd></div>
            <div><dt>Epoch</dt><dd>{group.epoch}</dd></div>
            <div><dt>Engine</dt><dd>{group.engine}</dd></div>
            <div>
              <dt>Audits passed, failed, disputed</dt>
              <dd>{short(group.audits_passed)}, <span class={group.audits_failed > 0 ? "wrong" : undefined}>{short(group.audits_failed)}</span>, {short(group.audits_disputed)}</dd>
            </div>
            <div><dt>Requests to join</dt><dd>{short(group.joins_waiting)}</dd></div>
          </dl>
        </section>
      ))}
    </>
  );
}
