// What runs on this host.

export interface LiveProblem {
  text: string;
  /** For how many seconds, or a moment in RFC 3339. */
  since?: number | string | null;
  remedy: string;
}

export interface LiveChannel {
  name: string;
  state: string;
  achieved_mbit: number;
  predicted_mbit?: number;
  loss: number | null;
  quarantined: boolean;
}

export interface LiveProcess {
  kind: string;
  name: string;
  pid?: number;
  since_s?: number;
  /** The document of `sunder status`. */
  status: Record<string, unknown>;
  problems: LiveProblem[];
  channels?: LiveChannel[];
}

export interface LiveDocument {
  processes: LiveProcess[];
}

/** Of a member of a quorum. */
export interface QuorumStatus {
  servers: number;
  faulty: number;
  index: number | null;
  has_shares: boolean;
  without_vote: number[];
  health: { ok: boolean; epoch: number | null; height: number; connected: number; needed: number };
  refresh: {
    epoch: number;
    step: string;
    done: number;
    of: number;
    waiting_for: { server: number }[];
  } | null;
  signed: number;
  refused: number;
  /** `index` is the server's number in the group, from 1; null for a server of another group. */
  links: { index: number | null; address: string; up: boolean; round_trip_ms?: number | null; why?: string | null }[];
}

/** Of a group of a chat proxy. */
export interface ChatGroupStatus {
  name: string;
  engine: string;
  epoch: number;
  round: number;
  members: number;
  max_members: number;
  connected: number;
  participants: number;
  joins_waiting: number;
  late_members: number;
  round_ms: number;
  audits_passed: number;
  audits_failed: number;
  audits_disputed: number;
}
