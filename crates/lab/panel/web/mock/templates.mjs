// What the mock server can run.
const number = (name, label, unit, [min, max], start, suggested, group = "where") => ({
  kind: "number", name, label, unit, min, max, suggested, group, default: [start],
});
const choice = (name, label, group, multiple, options, start) => ({
  kind: "choice", name, label, group, multiple, default: start,
  options: Object.entries(options).map(([name, label]) => ({ name, label })),
});

const file = (name, label, accept, max_bytes, help, has_example) => ({ kind: "file", name, label, group: "what", accept, max_bytes, help, has_example });

const delay = number("delay_ms", "Delay, one way", "ms", [0, 1000], 55, [0.25, 12.5, 25, 55, 110, 150]);
const loss = number("loss", "Loss", "", [0, 0.5], 0, [0, 0.0001, 0.001, 0.01, 0.03]);
const rate = (label) => number("rate_mbit", label, "Mbit/s", [0.1, 10000], 1000, [10, 100, 1000, 10000]);
const path = (there, back) => [delay, loss, rate(`Rate to the ${there}`), { ...rate(`Rate to the ${back}`), name: "back_mbit" }];
const parties = path("evaluator", "garbler");
const transports = choice("transport", "Transport", "how", true,
  { auto: "auto", "tcp-cubic": "TCP, CUBIC", "tcp-bbr": "TCP, BBR", quic: "QUIC", sabul: "SABUL", burst: "burst" },
  ["auto", "tcp-cubic"]);
const scheme = choice("scheme", "Garbling scheme", "how", false, {
  "half-gates": "half gates", "half-gates-keyed": "half gates, labels as keys", "three-halves": "three halves", glnp15: "GLNP15", "fixed-key": "fixed key (less secure)",
}, ["half-gates"]);
const channels = { ...number("channels", "Channels", "", [2, 5], 3, [2, 3, 4, 5], "how"), whole: true };
const servers = choice("servers", "Servers", "what", false, { "4": "4, one of which may be faulty", "7": "7, two of which may be faulty", "10": "10, three of which may be faulty" }, ["4"]);

export const templates = [
  {
    name: "compute", title: "Two-party computation",
    about: "Two parties compute a function of both inputs (Yao's protocol), over an emulated path",
    knobs: [
      choice("circuit", "Function", "what", false, { aes128: "AES-128, one block", sha256: "SHA-256, one block", mincut: "MinCut, 25,000 numbers" }, ["aes128"]),
      scheme, transports, ...parties,
    ],
  },
  {
    name: "sets", title: "Values in common",
    about: "Two parties find the values that both lists contain, and learn nothing else about the other list",
    knobs: [
      file("garbler_file", "File of the garbler", ".csv,.txt", 1_000_000, "One value in each line.", true),
      file("evaluator_file", "File of the evaluator", ".csv,.txt", 1_000_000, "One value in each line.", true),
      transports, ...parties,
    ],
  },
  {
    name: "circuit", title: "Circuit file",
    about: "Two parties compute the circuit of a file on inputs of zeros (Yao's protocol)",
    knobs: [file("circuit_file", "Circuit", ".txt,.circuit", 8_000_000, "In Bristol Fashion.", false), scheme, transports, ...parties],
  },
  {
    name: "tunnel", title: "Tunnel over several channels",
    about: "A tunnel splits each packet into shares, sends each share over another channel, and needs only some of them to join the packet",
    knobs: [
      channels,
      number("kappa", "kappa", "", [1, 5], 1.5, [1, 1.5, 2, 3], "how"),
      { ...number("mu", "mu", "", [1, 5], 2, [1, 2, 3], "how"), help: "The mean number of shares of a symbol; at least kappa" },
      number("delay_ms", "Delay of each channel", "ms", [0, 500], 10, [1, 10, 50]),
      loss,
      number("rate_mbit", "Rate of each channel", "Mbit/s", [1, 1000], 50, [10, 50, 100]),
    ],
  },
  {
    name: "stream", title: "Stream over several channels",
    about: "A TCP stream over several channels, of which an eavesdropper must read all (MICSS), beside TCP over the slowest channel",
    knobs: [channels, number("size_kb", "Size of an answer", "kB", [1, 100_000], 100, [1, 10, 100, 1000], "what"), number("clients", "Clients", "", [1, 100], 1, [1, 10, 100], "what"), delay, loss],
  },
  {
    name: "file", title: "File transfer",
    about: "One host sends a file to another over a transport",
    knobs: [number("size_mb", "Size", "MB", [0.001, 1000], 10, [0.1, 1, 10, 100], "what"), transports, ...path("receiver", "sender")],
  },
  {
    name: "signature", title: "Signature by a group of servers",
    about: "Servers sign together with a key that none of them has, also when some of them are silent",
    knobs: [servers, choice("mode", "Protocol", "how", true, { quick: "quick sign", full: "full sign" }, ["quick"]), delay],
  },
  {
    name: "refresh", title: "Refresh of a group's shares",
    about: "A group of servers passes its key on to as many other servers, with new shares, and the old shares become useless",
    knobs: [servers, delay],
  },
  {
    name: "chat", title: "Chat",
    about: "Members of a group write to each other through a proxy that cannot tell who writes to whom",
    knobs: [{ ...number("members", "Members of each group", "", [3, 200], 10, [5, 10, 20, 50], "what"), whole: true }, choice("engine", "Engine", "how", true, { ot: "OT", rsa: "RSA" }, ["ot"]), delay, loss],
  },
];

export const networks = [
  { name: "LAN", about: "A local network of 10 Gbit/s, 0.5 ms there and back", values: { delay_ms: 0.25, loss: 0, rate_mbit: 10000, back_mbit: 10000 } },
  { name: "EU-US", about: "From Europe to the United States: 1 Gbit/s, 110 ms there and back", values: { delay_ms: 55, loss: 0, rate_mbit: 1000, back_mbit: 1000 } },
  { name: "EU-AUS", about: "From Europe to Australia: 1 Gbit/s, 300 ms there and back", values: { delay_ms: 150, loss: 0, rate_mbit: 1000, back_mbit: 1000 } },
];

export const experiments = [
  { name: "compute-delay", about: "The time of a computation of two parties over links with longer and longer delays", paper: "Transputation, figures 5 to 7", trials: 180 },
  { name: "compute-loss", about: "The time of a computation of two parties over links of 10 Gbit/s that lose packets", paper: "Transputation, figures 8 to 10", trials: 180 },
  { name: "remicss-rate", about: "The rate of a ReMICSS tunnel over kappa and mu, beside the highest possible", paper: "ReMICSS, figure 4", trials: 96 },
  { name: "micss-web", about: "Requests to a web server, one connection each and many at once", paper: "MICSS, table 2", trials: 24 },
  { name: "quorum-refresh", about: "A refresh by servers that are all in one process: time and bytes", paper: "TSPSS, figure 3", trials: 12 },
  { name: "links", about: "How exactly links follow their configuration: rate, delay, loss", paper: null, trials: 30 },
];
