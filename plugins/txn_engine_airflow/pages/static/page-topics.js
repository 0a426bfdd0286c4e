// Topics: all of them.

import { get } from "./api.js";
import { plural } from "./format.js";
import { topicsTable } from "./page-overview.js";

export const load = (_, signal) => get("topics", {}, signal);

export function render({ topics, now_ms: now }) {
  return { lede: plural(topics.length, "topic"), content: [topicsTable(topics, topics.length, now)] };
}
