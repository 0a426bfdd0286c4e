// Groups: all of them.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, number, plural } from "./format.js";
import { link, table } from "./pieces.js";

export const load = (_, signal) => get("groups", {}, signal);

export function render({ groups, found, now_ms: now }) {
  return {
    lede: plural(found, "group"),
    content: [
      table({
        caption: "Consumer groups", note: `lag against the last stable offset, ${found > groups.length ? `the first ${number(groups.length)} of ${number(found)}, ` : ""}the largest first`,
        columns: ["Group", "#Lag", "#Partitions", "#Pending", "Topics", "Last commit"],
        rows: groups.map((group) => [
          link("group", { group: group.group_id }, group.group_id), number(group.lag), number(group.partitions),
          group.pending ? h("span", { class: "strong-warn" }, number(group.pending)) : "0", group.topics.join(", "),
          group.committed_ms >= 0 ? ago(group.committed_ms, now) : DASH,
        ]),
        empty: "No group has committed an offset.",
      }),
    ],
  };
}
