// A quorum as a ring of servers, as one of them sees it.
import { count, plural } from "../format";
import type { QuorumStatus } from "./types";

const SIZE = 260;
const RADIUS = 96;

interface Server {
  /** In the group; null for a server of another one, which has no place in the ring. */
  number: number | null;
  isSelf: boolean;
  isUp: boolean;
  hasVote: boolean;
  about: string;
}

const STEPS: Record<string, string> = {
  approving: "servers approve it",
  session_keys: "new servers register their keys",
  dealing: "old servers deal their shares",
  computing: "new servers compute their shares",
  done: "done",
  cancelled: "cancelled",
};

export function Quorum({ status }: { status: QuorumStatus }) {
  const servers = serversOf(status);
  const { health, refresh } = status;
  const isOpen = refresh && refresh.step !== "done" && refresh.step !== "cancelled";
  return (
    <div class="quorum">
      <Ring servers={servers.filter((server) => server.number !== null)} epoch={health.epoch} />
      <div class="quorum-facts">
        <dl class="facts">
          <div><dt>Epoch</dt><dd>{health.epoch ?? "–"}</dd></div>
          <div><dt>Height of the log</dt><dd>{count(health.height)}</dd></div>
          <div><dt>Connected servers</dt><dd>{health.connected} of {status.servers - 1}; a signature needs {health.needed}</dd></div>
          <div><dt>Faulty servers tolerated</dt><dd>{status.faulty}</dd></div>
          <div><dt>Signed, refused</dt><dd>{count(status.signed)}, {count(status.refused)}</dd></div>
        </dl>
        {isOpen && (
          <div class="refresh">
            <p>Refresh to epoch {refresh.epoch}: {STEPS[refresh.step] ?? refresh.step}, {refresh.done} of {refresh.of}</p>
            <progress value={refresh.done} max={refresh.of} aria-label="Progress of the refresh" />
            {refresh.waiting_for.length > 0 && <p class="hint">It waits for {plural(refresh.waiting_for.length, "server")}: {refresh.waiting_for.map((it) => it.server).join(", ")}</p>}
          </div>
        )}
        <details>
          <summary>Servers as a table</summary>
          <table>
            <thead><tr><th scope="col" class="number">server</th><th scope="col">link</th><th scope="col">vote</th><th scope="col">address</th></tr></thead>
            <tbody>
              {servers.map((server) => (
                <tr key={server.number ?? server.about}>
                  <td class="number">{server.number ?? "–"}</td>
                  <td>{server.isSelf ? "this server" : server.isUp ? "up" : <b class="wrong">down</b>}</td>
                  <td>{server.number === null ? "–" : server.hasVote ? "yes" : <b class="wrong">no</b>}</td>
                  <td>{server.about}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      </div>
    </div>
  );
}

function serversOf(status: QuorumStatus): Server[] {
  const own = status.index ?? 0;
  const servers: Server[] = status.links.map((link) => ({
    number: link.index,
    isSelf: false,
    isUp: link.up,
    hasVote: link.index !== null && !status.without_vote.includes(link.index),
    about: link.why ? `${link.address}: ${link.why}` : link.address,
  }));
  const self = { number: own, isSelf: true, isUp: true, hasVote: !status.without_vote.includes(own), about: "this host" };
  const place = (server: Server) => server.number ?? Number.MAX_SAFE_INTEGER;
  return (own > 0 ? [...servers, self] : servers).sort((a, b) => place(a) - place(b));
}

function Ring({ servers, epoch }: { servers: Server[]; epoch: number | null }) {
  const middle = SIZE / 2;
  return (
    <figure class="ring">
      <svg viewBox={`0 0 ${SIZE} ${SIZE}`} role="img" aria-label="The servers in a ring; the table has the same">
        <circle cx={middle} cy={middle} r={RADIUS} class="ring-line" />
        {servers.map((server, i) => {
          const angle = (2 * Math.PI * i) / servers.length - Math.PI / 2;
          const [x, y] = [middle + RADIUS * Math.cos(angle), middle + RADIUS * Math.sin(angle)];
          const kind = [server.isUp ? "up" : "down", server.isSelf && "self"].filter(Boolean).join(" ");
          return (
            <g key={server.number} class={`server ${kind}`}>
              <title>{`Server ${server.number}: ${server.isUp ? "up" : "down"}${server.hasVote ? "" : ", without a vote"}`}</title>
              {server.isSelf && <circle cx={x} cy={y} r={23} class="self-ring" />}
              <circle cx={x} cy={y} r={18} />
              <text x={x} y={y} dominant-baseline="central" text-anchor="middle">{server.number}</text>
              {!server.hasVote && <path d={`M${x - 15} ${y + 15}L${x + 15} ${y - 15}`} class="no-vote" />}
            </g>
          );
        })}
        <text x={middle} y={middle - 12} text-anchor="middle" class="ring-label">epoch</text>
        <text x={middle} y={middle + 18} text-anchor="middle" class="ring-epoch">{epoch ?? "–"}</text>
      </svg>
      <figcaption class="hint">Double ring: this server. Dashed: no link. Struck out: no vote.</figcaption>
    </figure>
  );
}
