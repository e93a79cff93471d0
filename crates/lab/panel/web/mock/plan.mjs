// Plans that are plausible, not the best.
function subsets(count) {
  return Array.from({ length: 2 ** count - 1 }, (_, i) => Array.from({ length: count }, (_, c) => c).filter((c) => ((i + 1) >> c) & 1));
}

/** The probability that at least k of some events happen. */
function atLeast(k, chances) {
  let distribution = [1];
  for (const chance of chances) {
    const next = Array(distribution.length + 1).fill(0);
    distribution.forEach((p, i) => {
      next[i] += p * (1 - chance);
      next[i + 1] += p * chance;
    });
    distribution = next;
  }
  return distribution.slice(k).reduce((sum, p) => sum + p, 0);
}

function entry(channels, k, set) {
  const chosen = set.map((c) => channels[c]);
  const delays = chosen.map((it) => it.delay_ms).sort((a, b) => a - b);
  return {
    k, channels: set,
    risk: atLeast(k, chosen.map((it) => it.risk)),
    loss: 1 - atLeast(k, chosen.map((it) => 1 - it.loss)),
    delay: delays[k - 1],
  };
}

function bestRate(channels, mu) {
  let [low, high] = [0, channels.reduce((sum, it) => sum + it.rate, 0)];
  for (let i = 0; i < 60; i += 1) {
    const rate = (low + high) / 2;
    const carried = channels.reduce((sum, it) => sum + Math.min(it.rate, rate), 0);
    if (carried >= mu * rate) low = rate;
    else high = rate;
  }
  return low;
}

function best(channels, k, m, property) {
  const k_ = Math.max(1, Math.min(k, m));
  const options = subsets(channels.length).filter((set) => set.length === m).map((set) => entry(channels, k_, set));
  return options.sort((a, b) => a[property] - b[property])[0];
}

function scheduleOf(channels, kappa, mu, property) {
  const [k, m] = [Math.floor(kappa), Math.floor(mu)];
  const [fk, fm] = [kappa - k, mu - m];
  const both = Math.min(fk, fm);
  const parts = [[k + 1, m + 1, both], [k + 1, m, fk - both], [k, m + 1, fm - both], [k, m, 1 - Math.max(fk, fm)]];
  return parts.filter(([, , p]) => p > 1e-9).map(([a, b, p]) => ({ ...best(channels, a, Math.min(b, channels.length), property), p }));
}

function propertiesOf(channels, kappa, mu, property) {
  const schedule = scheduleOf(channels, kappa, mu, property);
  const mean = (name) => schedule.reduce((sum, it) => sum + it.p * it[name], 0);
  return { schedule, risk: mean("risk"), loss: mean("loss"), delay: mean("delay"), rate: bestRate(channels, mu) };
}

const PROPERTY = { privacy: "risk", risk: "risk", loss: "loss", delay: "delay", rate: "delay" };

export function plan({ channels, kappa, mu, objective, max_risk, max_loss, max_delay, min_rate }) {
  const n = channels.length;
  if (n === 0) return [422, { error: "give at least one channel", field: "channels" }];
  if (kappa > mu) return [422, { error: `kappa = ${kappa} is more than mu = ${mu}`, field: "kappa" }];
  if (mu > n) return [422, { error: `mu = ${mu} is more than the ${n} channels`, field: "mu" }];
  const property = PROPERTY[objective ?? "privacy"];
  let chosen = { kappa: kappa ?? 1, mu: mu ?? 1 };
  if (kappa === undefined || mu === undefined) {
    const grid = Array.from({ length: n * 4 - 3 }, (_, i) => 1 + i / 4);
    const options = grid.flatMap((k) => grid.filter((m) => m >= k).map((m) => ({ kappa: k, mu: m, ...propertiesOf(channels, k, m, property) })));
    const kept = options.filter((it) => it.risk <= (max_risk ?? 1) && it.loss <= (max_loss ?? 1) && it.delay <= (max_delay ?? 1e9) && it.rate >= (min_rate ?? 0));
    if (kept.length === 0) return [422, { error: "no schedule keeps these bounds: raise one of them", field: null }];
    kept.sort((a, b) => (objective === "rate" ? b.rate - a.rate : a[property] - b[property]));
    chosen = kept[0];
  }
  const found = propertiesOf(channels, chosen.kappa, chosen.mu, property);
  const used = channels.map((it, c) => (found.rate * found.schedule.reduce((sum, e) => sum + (e.channels.includes(c) ? e.p : 0), 0)) / it.rate);
  const leave_one_out = n < 2 ? [] : channels.map(({ name }, c) => {
    const rest = channels.filter((_, i) => i !== c);
    if (chosen.mu > rest.length) return { without: name, error: `mu = ${chosen.mu} is more than the ${rest.length} other channels` };
    const { risk, loss, delay, rate } = propertiesOf(rest, chosen.kappa, chosen.mu, property);
    return { without: name, risk, loss, delay_ms: delay, rate };
  });
  const lines = [`kappa = ${chosen.kappa}`, `mu = ${chosen.mu}`, ...(objective ? [`objective = "${objective}"`] : []),
    ...channels.flatMap((it) => ["", "[[channel]]", `name = "${it.name}"`, `rate_mbit = ${it.rate}`, `risk = ${it.risk}`])];
  return [200, {
    names: channels.map((it) => it.name), kappa: chosen.kappa, mu: chosen.mu, rate: found.rate, risk: found.risk, loss: found.loss, delay: found.delay, delivered_delay: found.delay,
    schedule: found.schedule.map(({ k, channels, p }) => ({ k, channels, p })), utilisation: used.map((it) => Math.min(1, it)),
    toml: `${lines.join("\n")}\n`, leave_one_out,
  }];
}

export function surface({ channels, value, steps }) {
  const n = channels.length;
  const axis = Array.from({ length: steps }, (_, i) => 1 + ((n - 1) * i) / (steps - 1));
  const values = axis.map((mu) => axis.map((kappa) => (kappa > mu ? null : propertiesOf(channels, kappa, mu, PROPERTY[value])[value])));
  return { kappa: axis, mu: axis, values };
}

export function front({ channels, x, y }) {
  const n = channels.length;
  const axis = Array.from({ length: 6 * n }, (_, i) => 1 + ((n - 1) * i) / (6 * n - 1));
  const points = axis.flatMap((mu) => axis.filter((kappa) => kappa <= mu).map((kappa) => propertiesOf(channels, kappa, mu, PROPERTY[x])));
  const sign = (name) => (name === "rate" ? -1 : 1);
  const sorted = points.map((it) => ({ x: it[x], y: it[y] })).sort((a, b) => sign(x) * (a.x - b.x) || sign(y) * (a.y - b.y));
  let least = Infinity;
  return sorted.filter((it) => {
    if (sign(y) * it.y >= least) return false;
    least = sign(y) * it.y;
    return true;
  });
}
