// Processes whose rates vary, and some of whose channels have problems.
const started = Date.now();

export function live() {
  const time = (Date.now() - started) / 1000;
  const wave = (mean, phase) => mean * (0.9 + 0.1 * Math.sin(time / 3 + phase));
  const uptime_s = 86_400 + time;
  const processes = [
    {
      kind: "tunnel", name: "office", pid: 1204, since_s: uptime_s,
      status: {
        device: "sunder0", uptime_s, associated: true, mtu: 1400,
        achieved: { kappa: 1.52, mu: 2.04, risk: 0.0988, loss_out: 0.0052, delay_ms: 6.1, sent_symbols: 8_120_334, sent_bytes: 9.8e9, received_symbols: 7_803_120, received_bytes: 9.1e9, loss_in: 0.0049 },
        predicted: { kappa: 1.5, mu: 2, risk: 0.099, loss_out: 0.00517, delay_ms: 5.9, rate_mbit: 40 },
        channels: [{ risk: 0.1, loss_out: 0.01, delay_ms: 2.5, rate_mbit: 100 }, { risk: 0.3, loss_out: 0.005, delay_ms: 9, rate_mbit: 40 }, { risk: 0.2, loss_out: 0.02, delay_ms: 30, rate_mbit: 20 }, { risk: 0.25, loss_out: 0.01, delay_ms: 14, rate_mbit: 30 }],
      },
      problems: [
        { text: "Channel 4 (cable) is down: no route to the peer from this host.", since: 42 + time, remedy: "Check the link and the route: ip link, ip route get 198.51.100.10" },
        { text: "Channel 3 (lte) delivered changed shares and is in quarantine.", since: 17, remedy: "Wait until the quarantine ends. If it comes back, find who changes packets on this channel." },
      ],
      channels: [
        { name: "fibre", state: "up", achieved_mbit: wave(39, 0), predicted_mbit: 40, loss: 0.0102, quarantined: false },
        { name: "dsl", state: "up", achieved_mbit: wave(18.4, 1), predicted_mbit: 20, loss: 0.0047, quarantined: false },
        { name: "lte", state: "quarantine", achieved_mbit: 0, predicted_mbit: 20, loss: 0.02, quarantined: true },
        { name: "cable", state: "down", achieved_mbit: 0, predicted_mbit: 0, loss: 1, quarantined: false },
      ],
    },
    {
      kind: "stream", name: "proxy office", pid: 1388, since_s: uptime_s,
      status: {
        uptime_s, streams: { under_way: 12, finished: 48_211, refused: 3, broken: 1, tampered: 0, over_limit: 0 },
        channels: [{ server: "192.0.2.10:7000", state: "up", state_s: 86_400 }, { server: "198.51.100.10:7000", state: "down", state_s: 12, why: "no answer" }],
      },
      problems: [{ text: "Channel 2 (198.51.100.10:7000) is lost: no answer.", since: 12 + time, remedy: "Check the link and the path: ping 198.51.100.10" }],
      channels: [
        { name: "192.0.2.10:7000", state: "up", achieved_mbit: wave(12, 2), loss: 0, quarantined: false },
        { name: "198.51.100.10:7000", state: "down", achieved_mbit: 0, loss: 1, quarantined: false },
      ],
    },
    {
      kind: "quorum", name: "signer", pid: 990, since_s: uptime_s,
      status: {
        name: "signer", uptime_s, servers: 7, faulty: 2, index: 3, has_shares: true, header_signed: true, without_vote: [6],
        health: { ok: true, problem: "", problem_s: null, warning: "server 6 has no vote", epoch: 14, height: 20_331 + Math.floor(time), waiting_s: null, connected: 5, needed: 2 },
        refresh: { epoch: 15, step: "dealing", done: 9 + (Math.floor(time) % 12), of: 21, waiting_for: [{ server: 6, identity: "k6", address: "192.0.2.16:7300", connected: false }], cancelled: 0, cancelled_of: 3, problem: "", remedy: "" },
        signed: 4310, refused: 2, wrong_answers: 0,
        links: [1, 2, 4, 5, 6, 7].map((server) => ({ server: `k${server}`, index: server, address: `192.0.2.${10 + server}:7300`, up: server !== 6, state_s: 3600, why: server === 6 ? "no answer" : null, round_trip_ms: server === 6 ? null : 2 + server }))
          .concat({ server: "k8", index: null, address: "192.0.2.18:7300", up: true, state_s: 20, why: null, round_trip_ms: 4 }),
      },
      problems: [],
    },
    {
      kind: "chat proxy", name: "mix", pid: 1500, since_s: uptime_s,
      status: {
        name: "mix", uptime_s, listen: "192.0.2.30:7400", key: "k", refused_connections: 0,
        groups: [{ name: "friends", engine: "ot", epoch: 3, round: 18_220 + Math.floor(time / 2), members: 14, max_members: 100, connected: 12, connections: 12, participants: 11 + (Math.floor(time) % 2), joins_waiting: 1, late_members: 1, round_ms: 412, rounds: 18_219, exchanges: 210_331, late: 81, slow: 2, audits_passed: 910, audits_failed: 0, audits_disputed: 1, audits_abandoned: 4, found: [], unwritten: null }],
      },
      problems: [],
    },
    { kind: "transfer", name: "backup.tar", pid: 2011, since_s: 31 + time, status: { transport: "burst", sent_bytes: 8.1e8 + time * 4e6, total_bytes: 4.2e9, rate_mbit: wave(312, 1) }, problems: [] },
  ];
  return { processes };
}
