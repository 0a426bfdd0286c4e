// Numbers, sizes and times as people read them.

import { h } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export const DASH = "–";

/** A whole number; a dash for -1, which stands for "none". */
export function number(value) {
  return value === null || value === undefined || value < 0 ? DASH : NUMBER.format(value);
}

export function bytes(value) {
  if (value < 1024) return `${number(value)} B`;
  let size = value;
  let unit = "B";
  for (unit of ["KiB", "MiB", "GiB", "TiB"]) {
    size /= 1024;
    if (size < 1024) break;
  }
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
}

/** A span of time in its two largest units. */
export function duration(ms) {
  if (ms < 0) return DASH;
  const s = Math.floor(ms / 1000);
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return pair(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return pair(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

function pair(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

/** How long ago that was, with the moment itself in the title; `coarse`: in the largest unit alone. */
export function ago(ms, nowMs, coarse = false) {
  if (ms < 0) return DASH;
  const text = duration(Math.max(nowMs - ms, 0));
  return time(ms, `${coarse ? text.split(" ").slice(0, 2).join(" ") : text} ago`);
}

/** A moment, in the reader's own time zone. */
export function moment(ms) {
  if (ms < 0) return DASH;
  const at = new Date(ms);
  const today = DAY.format(at) === DAY.format(new Date());
  return time(ms, today ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`);
}

function time(ms, text) {
  const iso = new Date(ms).toISOString();
  return h("time", { datetime: iso, title: iso.replace("T", " ").replace("Z", " UTC") }, text);
}

export function plural(count, one, many) {
  return `${number(count)} ${count === 1 ? one : (many ?? `${one}s`)}`;
}
