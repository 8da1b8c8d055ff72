// Numbers as text.

export const kNothing = "—";

/// Returns an integer with its digits in groups of three.
export const whole = (value) => (value == null ? kNothing : String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ","));

export const fixed = (value, digits) => (value == null || !Number.isFinite(value) ? kNothing : value.toFixed(digits));

/// Returns three or four digits.
export function short(value) {
  if (value == null || !Number.isFinite(value)) return kNothing;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 1000 ? 5 : 4)));
}

/// Returns all digits of a large number, and three or four of a small one.
export const plain = (value) => (value != null && Math.abs(value) >= 1000 ? whole(value) : short(value));

export const milliseconds = (seconds) => fixed(seconds == null ? null : seconds * 1000, 2);
milliseconds.unit = "ms";

export function bytes(value) {
  if (value == null) return kNothing;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1024 && unit + 1 < units.length) {
    scaled /= 1024;
    ++unit;
  }
  return `${unit === 0 ? scaled : Number(scaled.toPrecision(4))} ${units[unit]}`;
}

/// Returns a word of a command as a shell reads it.
export const shellWord = (word) => (/^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);

/// Returns about `count` round numbers from 0 or `least` to `most`.
export function ticks(least, most, count) {
  const span = most - least || Math.abs(most) || 1;
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999);
  const list = [];
  for (let at = Math.ceil(least / step - 1e-9); at * step <= most + step * 1e-9; ++at) list.push(Number((at * step).toPrecision(12)));
  return list;
}

/// Returns about `count` numbers of bytes up to `most`, multiples of a power of two.
export function byteTicks(most, count) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2((most || 1) / Math.max(1, count))));
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}
