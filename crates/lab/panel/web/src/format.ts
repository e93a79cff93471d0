// Formats numbers for people, with as many digits as the commands print.

const DIGITS = 4;

/** A number with four significant digits, written out unless it is tiny or huge. */
export function short(value: number): string {
  return digits(value, DIGITS);
}

function digits(value: number, significant: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(significant));
  const size = Math.abs(rounded);
  if (size < 1e-4 || size >= 1e12) return rounded.toExponential();
  const [whole, fraction] = String(rounded).split(".");
  const grouped = inGroups(whole ?? "");
  return fraction ? `${grouped}.${fraction}` : grouped;
}

/** A comma after each thousand. */
function inGroups(whole: string): string {
  return whole.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A proportion in percent. */
export function percent(proportion: number): string {
  const value = 100 * proportion;
  return `${value > 0 && value < 1e-4 ? digits(value, 2) : short(value)} %`;
}

/** A probability as "1 in N". */
export function oneIn(probability: number): string {
  return probability > 0 ? `1 in ${short(1 / probability)}` : "never";
}

/** A measured value with its unit. Long times are shown in seconds. */
export function quantity(value: number, unit: string): string {
  if (unit === "ms" && Math.abs(value) >= 1000) return `${digits(value / 1000, 3)} s`;
  return unit ? `${digits(value, 3)} ${unit}` : digits(value, 3);
}

/** How long something takes, as in "3 min 20 s". */
export function duration(seconds: number): string {
  if (seconds < 1) return "less than 1 s";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return joined(minutes, "min", whole % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return joined(hours, "h", minutes % 60, "min");
  return joined(Math.floor(hours / 24), "days", hours % 24, "h");
}

function joined(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

/** A number of bytes. */
export function bytes(number: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${digits(number, 3)} ${units[unit]}`;
}

/** A moment, in the reader's time zone. */
export function moment(rfc3339: string): string {
  const date = new Date(rfc3339);
  if (Number.isNaN(date.getTime())) return rfc3339;
  const two = (number: number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** How far a measured value is from its prediction. */
export function deviation(measured: number, predicted: number): string {
  const ratio = measured / predicted - 1;
  if (!Number.isFinite(ratio)) return "";
  if (Math.abs(ratio) < 0.005) return "none";
  return `${digits(Math.abs(ratio) * 100, 2)} % ${ratio > 0 ? "more" : "less"}`;
}

/** A whole number with all its digits. */
export function count(value: number): string {
  return inGroups(String(Math.round(value)));
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}
