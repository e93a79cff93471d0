// Runs that measure nothing: their values come from a formula and some noise.
import { experiments, templates } from "./templates.mjs";

const STATES = ["finished", "finished", "finished", "finished", "stopped", "failed", "interrupted"];
const VALUES = [
  { name: "time", unit: "ms" }, { name: "connect", unit: "ms" }, { name: "setup", unit: "ms" },
  { name: "inputs", unit: "ms" }, { name: "gates", unit: "ms" }, { name: "sent", unit: "MB" },
];
/** The runs that others can open. */
const linked = new Set();
const MACHINE = { cpu: "AMD EPYC", cores: 2, memory_gib: 24, kernel: "6.18.44", congestion: "bbr", sunder: "0.1.0", revision: "50c146ce" };
const BUSY = "the machine was busy: packets arrived up to 3.2 ms late";

/** The newest first. */
const all = [];
/** The events so far and the responses that follow, by the name of the run. */
const followers = new Map();

function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const template = (request) => templates.find((it) => it.name === request.template) ?? templates[0];

function valuesOf(request) {
  if (request.experiment) {
    return { circuit: ["aes128", "sha256"], transport: ["auto", "tcp-cubic", "sabul"], loss: [0, 0.0001, 0.001, 0.01], delay_ms: [0.5, 25] };
  }
  // Files are not swept.
  return Object.fromEntries(Object.entries(request.values).filter(([, [first]]) => typeof first !== "object"));
}

/** What is kept of a request: of a file only its name, size and digest. */
function keptOf(request) {
  if (!request.values) return request;
  const kept = (value) => (typeof value === "object" ? { name: value.name, bytes: value.text.length, sha256: "0".repeat(64) } : value);
  return { ...request, values: Object.fromEntries(Object.entries(request.values).map(([name, list]) => [name, list.map(kept)])) };
}

function pointsOf(values) {
  return Object.entries(values).reduce(
    (points, [key, list]) => points.flatMap((point) => list.map((value) => ({ ...point, [key]: value }))),
    [{}],
  );
}

const MEGABYTES = { aes128: 0.22, sha256: 2.9, mincut: 88 };

function predictedTime(point) {
  const megabytes = point.size_mb ?? MEGABYTES[point.circuit] ?? 1;
  const rtt = 2 * (point.delay_ms ?? 1);
  const rate = point.rate_mbit ?? 10000;
  const transport = point.transport ?? "auto";
  const rounds = { auto: 3, burst: 3, quic: 4, sabul: 5 }[transport] ?? 4 + Math.log2(1 + megabytes * 20);
  const slowdown = { "tcp-cubic": 1 + (point.loss ?? 0) * 900, "tcp-bbr": 1 + (point.loss ?? 0) * 60, sabul: 1 + (point.loss ?? 0) * 120 }[transport] ?? 1 + (point.loss ?? 0) * 8;
  return 9 + rounds * rtt + ((megabytes * 8000) / rate) * slowdown + rtt * (slowdown - 1) * 2;
}

function record(point, repetition, draw) {
  const predicted = predictedTime(point);
  const time = predicted * (0.97 + 0.12 * draw());
  const rtt = 2 * (point.delay_ms ?? 1);
  const invalid = draw() < 0.07;
  const values = { time, connect: rtt * 1.02, setup: rtt * 1.5 + 2, inputs: rtt * 0.6, gates: Math.max(1, time - rtt * 3.12 - 2), sent: MEGABYTES[point.circuit] ?? 1 };
  return {
    repetition, point, values, predictions: { time: predicted }, late_ms: invalid ? 3.2 : 0.1 + 0.3 * draw(), missed: 0, attempts: invalid ? 3 : 1, invalid,
    ...(invalid && { reason: BUSY }),
    ...(point.transport && { texts: textsOf(point) }),
  };
}

function textsOf(point) {
  if (point.transport !== "auto") return { transport: point.transport.replace(/-.*/, "") };
  const seconds = (transport) => (predictedTime({ ...point, transport }) / 1000).toFixed(3);
  const path = `round trip ${(2 * point.delay_ms).toFixed(1)} ms, ${point.rate_mbit ?? 1000} Mbit/s up, ${point.back_mbit ?? 1000} down, 0 of 200 packets lost: 0.300 % assumed`;
  return { transport: "burst", reason: `burst is predicted to take ${seconds("burst")} s, tcp ${seconds("tcp-cubic")} s (${path})` };
}

function trialsOf(request) {
  const repetitions = Array.from({ length: request.repetitions ?? 1 }, (_, i) => i + 1);
  const points = pointsOf(valuesOf(request));
  return repetitions.flatMap((repetition) => points.map((point) => ({ point, repetition })));
}

function makeRun(id, request, created, state) {
  const total = trialsOf(request).length;
  const done = state === "finished" ? total : 0;
  const title = request.experiment ?? template(request).title;
  return { id, title, request, created, state, done, total, invalid: 0, note: "", error: null, seconds_left: null };
}

function fill() {
  const draw = random(7);
  const now = Date.now();
  const delays = [0.25, 12.5, 55, 150];
  for (let i = 0; i < 10_000; i += 1) {
    const time = new Date(now - (i + 1) * 53 * 60_000);
    const id = `${time.toISOString().replace(/\D/g, "").slice(0, 14).replace(/^(.{8})/, "$1-")}-${(0x10000000 + i * 7919).toString(16)}`;
    const isSweep = i % 3 === 1;
    const request = i % 17 === 5
      ? { experiment: experiments[i % experiments.length].name }
      : {
          template: "compute", repetitions: isSweep ? 2 : 1,
          values: {
            circuit: [["aes128", "sha256", "mincut"][i % 5] ?? "aes128"], scheme: ["half-gates"],
            transport: isSweep ? ["auto", "tcp-cubic", "sabul"] : ["auto", "tcp-cubic"],
            delay_ms: [delays[i % 4]], loss: isSweep ? [0, 0.0001, 0.001, 0.01, 0.03] : [0], rate_mbit: [1000], back_mbit: [1000],
          },
        };
    const run = makeRun(id, request, time.toISOString(), i < 4 ? "finished" : STATES[Math.floor(draw() * STATES.length)]);
    if (run.state !== "finished") run.done = Math.floor(run.total / 2);
    if (run.state === "failed") run.error = "trial 4 failed: the evaluator did not finish within 120 s";
    if (i === 0) run.note = "before the new scheduler";
    if (i === 1) run.note = "loss over the Atlantic, for the report";
    all.push(run);
  }
}
fill();

const seedOf = (id) => [...id].reduce((sum, letter) => Math.imul(sum, 31) + letter.charCodeAt(0), 7);

function eventsOf(run) {
  const draw = random(seedOf(run.id));
  const trials = trialsOf(run.request);
  const count = run.state === "running" || run.state === "queued" ? trials.length : run.done;
  return trials.slice(0, count).map(({ point, repetition }, i) => {
    const result = record(point, repetition, draw);
    const name = `trial ${i + 1} of ${trials.length}: ${Object.values(point).join(", ")}`;
    const begin = { event: "trial", number: i + 1, done: i, total: trials.length, name, point, predictions: result.predictions };
    const phases = template(run.request).name === "compute" || run.request.experiment ? phasesOf(result, i + 1) : [];
    return { begin, samples: samplesOf(result, draw), phases, end: { event: "result", number: i + 1, ...result } };
  });
}

/** Cumulative bytes of an exchange that starts slowly, every tenth of a second or more often. */
function samplesOf({ values, point }, draw) {
  const end_s = values.time / 1000;
  const steps = Math.max(6, Math.min(80, Math.round(end_s * 10)));
  const megabytes = values.sent * 1.06;
  let [there, back] = [0, 0];
  const grows = point.transport === "tcp-cubic" ? 2.2 : 1.1;
  const weights = Array.from({ length: steps }, (_, i) => (i / steps < 0.25 ? 0.02 : ((i / steps - 0.2) ** grows) * (0.8 + 0.4 * draw())));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight, i) => {
    there += (weight / sum) * megabytes * 1e6;
    back += (0.02 + (i < steps / 3 ? 0.06 : 0)) * (megabytes / steps) * 1e6;
    return { event: "sample", time_s: ((i + 1) / steps) * end_s, links: { a: [Math.round(there), Math.round(back)] } };
  });
}

function phasesOf({ values }, number) {
  const events = [];
  for (const [party, shift] of [["garbler", 0], ["evaluator", 0.04]]) {
    let start_s = 0;
    for (const name of ["connect", "setup", "inputs", "gates"]) {
      const time_s = (values[name] / 1000) * (1 - (name === "gates" ? shift : 0));
      const begun = { event: "phase", number, party, name, start_s: start_s + (name === "gates" ? shift * time_s : 0) };
      events.push(begun, { ...begun, time_s, bytes: Math.round(values.sent * 1e6 * { connect: 0, setup: 0.05, inputs: 0.1, gates: 0.85 }[name]) });
      start_s += values[name] / 1000;
    }
  }
  return events;
}

export function predict(request) {
  const points = request.experiment ? [] : pointsOf(valuesOf(request));
  const times = points.map(predictedTime);
  const trials = trialsOf(request).length;
  const mean = times.reduce((sum, time) => sum + time, 0) / (times.length || 1);
  const predictions = points.slice(0, 64).map((point, i) => ({
    point, values: [{ name: "time", unit: "ms", predicted: times[i] }],
    ...(point.transport && { texts: { transport: textsOf(point).transport } }),
  }));
  return { trials, seconds: trials * (1.2 + mean / 1000), predictions: hasPrediction(request) ? predictions : [] };
}

/** As a server without a model of these applications. */
const hasPrediction = (request) => !["chat", "refresh", "signature"].includes(request.template);

export function toml(request) {
  const lines = Object.entries(valuesOf(request)).map(([key, list]) => `${key} = ${JSON.stringify(list)}`);
  return `about = "A computation of two parties"\nrepetitions = ${request.repetitions ?? 1}\n\n[sweep]\n${lines.join("\n")}\n`;
}

export function create(request) {
  if (Object.values(request.values ?? {}).some((list) => list.length === 0)) return [422, { error: "give 1 to 64 values", field: "loss" }];
  const files = Object.entries(request.values ?? {}).filter(([, [first]]) => typeof first === "object");
  for (const [field, [{ name, text }]] of files) {
    if (!text.includes("\n")) return [422, { error: `line 1 of ${name} has no end: put one value in each line`, field }];
  }
  const now = new Date();
  const id = `${now.toISOString().replace(/\D/g, "").slice(0, 14).replace(/^(.{8})/, "$1-")}-${Math.floor(Math.random() * 2 ** 32).toString(16).padStart(8, "0")}`;
  const run = makeRun(id, keptOf(request), now.toISOString(), "running");
  all.unshift(run);
  void perform(run);
  return [201, { id }];
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sends the events of a run at the pace of about five seconds in all. */
async function perform(run) {
  const follower = { events: [], responses: new Set() };
  followers.set(run.id, follower);
  const send = (event) => {
    follower.events.push(event);
    for (const response of follower.responses) write(response, event, follower.events.length);
  };
  send({ event: "state", state: "running" });
  const trials = eventsOf(run);
  const each = Math.max(60, 5000 / trials.length);
  for (const { begin, samples, phases, end } of trials) {
    if (run.state !== "running") break;
    send(begin);
    // The events of a trial in the order of their times, which pass in the time of a trial here.
    const length_s = end.values.time / 1000;
    const momentOf = (event) => event.time_s !== undefined && event.event === "phase" ? event.start_s + event.time_s : event.start_s ?? event.time_s;
    const events = [...samples, ...phases].sort((a, b) => momentOf(a) - momentOf(b));
    let passed_s = 0;
    for (const event of events) {
      await pause((each * Math.max(0, momentOf(event) - passed_s)) / length_s);
      passed_s = momentOf(event);
      send(event);
    }
    send(end);
    run.done += 1;
    run.invalid += end.invalid ? 1 : 0;
    run.seconds_left = ((run.total - run.done) * each) / 1000;
  }
  if (run.state === "running") run.state = "finished";
  send({ event: "end", done: run.done, total: run.total });
  send({ event: "state", state: run.state });
  for (const response of follower.responses) response.end();
  followers.delete(run.id);
}

function write(response, event, id) {
  response.write(`id: ${id}\ndata: ${JSON.stringify(event)}\n\n`);
}

export function watch(id, response) {
  const run = all.find((it) => it.id === id);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const follower = followers.get(id);
  if (follower) {
    follower.events.forEach((event, i) => write(response, event, i + 1));
    follower.responses.add(response);
    response.on("close", () => follower.responses.delete(response));
    return;
  }
  const events = run ? eventsOf(run).flatMap(({ begin, samples, phases, end }) => [begin, ...samples, ...phases, end]) : [];
  [...events, { event: "state", state: run?.state ?? "failed", error: run?.error }].forEach((event, i) => write(response, event, i + 1));
  response.end();
}

export function show(id) {
  const run = all.find((it) => it.id === id);
  if (!run) return [404, { error: "there is no such run" }];
  const trials = eventsOf(run).map(({ end: { event, ...trial } }) => trial);
  return [200, {
    ...run, file: `${run.request.template ?? run.request.experiment}.toml`, keys: Object.keys(valuesOf(run.request)), shared: linked.has(id),
    values: run.request.experiment ? VALUES.map((value) => (value.name === "time" ? { ...value, published: true } : value)) : VALUES,
    plots: run.request.experiment ? [{ title: "AES-128 over lossy links", x: "loss", y: "time", lines: "transport", each: "delay_ms" }] : [],
    trials: trials.slice(0, run.done), machine: MACHINE, seed: run.request.seed ?? 1,
  }];
}

export function list(query) {
  const words = (query.get("search") ?? "").toLowerCase();
  const found = all.filter((run) => `${run.title} ${run.note} ${run.id}`.toLowerCase().includes(words));
  const before = query.get("before");
  const first = before ? found.findIndex((run) => run.id < before) : 0;
  const limit = Number(query.get("limit") ?? 50);
  return { runs: first < 0 ? [] : found.slice(first, first + limit), total: found.length };
}

export function queue() {
  const running = all.find((run) => run.state === "running") ?? null;
  return { running, queued: [], seconds_left: running?.seconds_left ?? null };
}

const found = (id, change) => {
  const run = all.find((it) => it.id === id);
  if (!run) return [404, { error: "there is no such run" }];
  change(run);
  return [202, {}];
};

export function link(id, host) {
  linked.add(id);
  return [201, { url: `http://${host}/?run=${id}` }];
}

export function withdrawLink(id) {
  linked.delete(id);
  return [200, {}];
}

export const annotate = (id, note) => found(id, (run) => { run.note = note; });
export const stop = (id) => found(id, (run) => { run.state = "stopped"; });
export const resume = (id) => found(id, (run) => {
  run.state = "running";
  run.done = 0;
  void perform(run);
});
export const remove = (id) => found(id, (run) => all.splice(all.indexOf(run), 1));

export function file(id, name) {
  const [, document] = show(id);
  if (name.endsWith(".toml")) return toml(document.request);
  if (name.endsWith(".json")) return JSON.stringify(document, null, 2);
  const trials = document.trials;
  const keys = Object.keys(trials[0]?.point ?? {});
  return [[...keys, "time"].join(","), ...trials.map((trial) => [...keys.map((key) => trial.point[key]), trial.values.time].join(","))].join("\n");
}
