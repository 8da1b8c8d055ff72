// Numbers of a running job as text.

import { kNothing, short } from "../common/format.js";

/// Returns a duration in the two largest units that it has.
export function duration(t, seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return kNothing;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} ${t.units.s}`;
  const whole = Math.round(seconds);
  const parts = [[Math.floor(whole / 86400), t.units.d], [Math.floor(whole / 3600) % 24, t.units.h], [Math.floor(whole / 60) % 60, t.units.min], [whole % 60, t.units.s]];
  const first = parts.findIndex(([value]) => value > 0);
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

/// Returns a rate of a few digits.
export const rate = (value) => (value == null ? kNothing : value >= 1000 ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",") : short(value));

/// Returns the time as a clock on the reader's wall shows it.
export const clock = (date) => [date.getHours(), date.getMinutes(), date.getSeconds()].map((value) => String(value).padStart(2, "0")).join(":");

/// The categories of booked memory, in the order of their bars.
export const kCategories = ["parameters", "gradients", "optimizer", "activations", "communication", "index"];

/// Returns the booked bytes of a process; null if nothing is known.
export const booked = (memory) => {
  const known = kCategories.map((name) => memory?.[name]).filter((value) => value != null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
};

/// True if any value of a list, or of a field of its objects, is known.
export const some = (list, field) => (list ?? []).some((one) => (field === undefined ? one : one[field]) != null);

/// True if the run's processes write what they do now.
export const isLive = ({ workers, servers, links }) => links.length > 0 || some(workers, "waiting") || some(servers, "busy");

/// True if a gradient missed an update.
export const isStale = ({ workers, series }) => workers.some((one) => one.staleness > 0) || series.staleness.some((value) => value > 0);
