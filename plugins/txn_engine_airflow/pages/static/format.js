// Numbers, sizes and times as people read them.

import { h } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const ZONED = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
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

/** A span of time in its two largest units; a dash for -1, which stands for "not known". */
export function duration(ms) {
  if (ms < 0) return DASH;
  const s = Math.floor(ms / 1000);
  if (ms < 1) return "under 1 ms"; // logs tell whole milliseconds, and a clock may stand still
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return pair(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return pair(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

function pair(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

const CLOCKS_DIFFER_MS = 5000;
const heard = { serverMs: Date.now(), atMs: performance.now() };

/** Set the clock by which every age is told: the server's, for this machine's may be wrong. */
export function hearClock(nowMs) {
  heard.serverMs = nowMs;
  heard.atMs = performance.now();
}

/** The server's time now. It goes on while nothing is heard: what is shown grows older meanwhile. */
export function now() {
  return heard.serverMs + performance.now() - heard.atMs;
}

/** How long that has lasted: never negative, and a dash where a clock ahead of the server's makes it unknown. */
export function since(ms) {
  const age = ageOf(ms);
  return age < 0 ? DASH : age < 1000 ? "under 1 s" : duration(age);
}

/** How long ago that was, with the moment itself in the title; `coarse`: in the largest unit alone. */
export function ago(ms, coarse = false) {
  if (ms < 0) return DASH;
  const age = ageOf(ms);
  const text = coarse ? duration(age).split(" ").slice(0, 2).join(" ") : duration(age);
  return time(ms, age < 0 ? "ahead of the clock here" : age < 1000 ? "just now" : `${text} ago`);
}

/** As the engine's `time_since_ms`. */
function ageOf(ms) {
  if (ms < 0 || ms - now() > CLOCKS_DIFFER_MS) return -1;
  return Math.max(now() - ms, 0);
}

/** A moment, in the reader's own time zone; `zoned`: with that zone's name, beside times of another one. */
export function moment(ms, zoned = false) {
  if (ms < 0) return DASH;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return DASH;
  const today = DAY.format(at) === DAY.format(new Date(now()));
  const clock = zoned ? ZONED.format(at) : CLOCK.format(at);
  return time(ms, today ? clock : `${DAY.format(at)}, ${clock}`);
}

function time(ms, text) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return text; // further than any calendar goes
  const iso = at.toISOString();
  return h("time", { datetime: iso, title: iso.replace("T", " ").replace("Z", " UTC") }, text);
}

export function plural(count, one, many) {
  return `${number(count)} ${count === 1 ? one : (many ?? `${one}s`)}`;
}
