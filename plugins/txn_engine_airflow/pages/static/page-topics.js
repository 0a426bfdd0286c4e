// Topics: all of them.

import { get } from "./api.js";
import { plural } from "./format.js";
import { damageTable } from "./pieces.js";
import { topicsTable } from "./page-overview.js";

export const load = (_, signal) => get("topics", {}, signal);

export function render({ topics, damage }) {
  return { lede: plural(topics.length, "topic"), content: [damageTable(damage), topicsTable(topics, topics.length)] };
}
