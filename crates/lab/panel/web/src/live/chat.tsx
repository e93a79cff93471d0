// The groups of a chat proxy.
import { count } from "../format";
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
            <b>{count(group.participants)}</b> of {count(group.members)} members took part in the last round, {count(group.connected)} are connected
            {group.late_members > 0 && `, ${count(group.late_members)} late`}.
          </p>
          <dl class="facts">
            <div><dt>Round</dt><dd>{count(group.round)}, open for {count(Math.round(group.round_ms))} ms</dd></div>
            <div><dt>Epoch</dt><dd>{group.epoch}</dd></div>
            <div><dt>Engine</dt><dd>{group.engine}</dd></div>
            <div>
              <dt>Audits passed, failed, disputed</dt>
              <dd>{count(group.audits_passed)}, <span class={group.audits_failed > 0 ? "wrong" : undefined}>{count(group.audits_failed)}</span>, {count(group.audits_disputed)}</dd>
            </div>
            <div><dt>Requests to join</dt><dd>{count(group.joins_waiting)}</dd></div>
          </dl>
        </section>
      ))}
    </>
  );
}
