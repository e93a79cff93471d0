// What the mock server can run.
const number = (name, label, unit, [min, max], start, suggested, group = "where") => ({
  kind: "number", name, label, unit, min, max, scale: "linear", suggested, group, default: [start],
});
const choice = (name, label, group, multiple, options, start) => ({
  kind: "choice", name, label, group, multiple, default: start,
  options: Object.entries(options).map(([name, label]) => ({ name, label })),
});

const path = [
  number("delay_ms", "Delay, one way", "ms", [0, 1000], 55, [0.25, 12.5, 25, 55, 110, 150]),
  number("loss", "Loss", "", [0, 0.5], 0, [0, 0.0001, 0.001, 0.01, 0.03]),
  number("rate_mbit", "Rate to the evaluator", "Mbit/s", [0.1, 10000], 1000, [10, 100, 1000, 10000]),
  number("back_mbit", "Rate to the garbler", "Mbit/s", [0.1, 10000], 1000, [10, 100, 1000, 10000]),
];
const transports = choice("transport", "Transport", "how", true,
  { auto: "auto", "tcp-cubic": "TCP, CUBIC", "tcp-bbr": "TCP, BBR", quic: "QUIC", sabul: "SABUL", burst: "burst" },
  ["auto", "tcp-cubic"]);

export const templates = [
  {
    name: "compute",
    title: "Two-party computation",
    about: "Two parties compute a function of both inputs (Yao's protocol), over an emulated path",
    knobs: [
      choice("circuit", "Function", "what", false, { aes128: "AES-128, one block", sha256: "SHA-256, one block", mincut: "MinCut, 25,000 numbers" }, ["aes128"]),
      choice("scheme", "Garbling scheme", "how", false, {
        "half-gates": "half gates", "half-gates-keyed": "half gates, labels as keys", "three-halves": "three halves", glnp15: "GLNP15", "fixed-key": "fixed key (less secure)",
      }, ["half-gates"]),
      transports,
      ...path,
    ],
  },
  {
    name: "transfer",
    title: "File transfer",
    about: "One host sends a file to another, over an emulated path",
    knobs: [number("size_mb", "Size", "MB", [0.001, 1000], 10, [0.1, 1, 10, 100], "what"), transports, ...path],
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
