// One topic: what it was made with, and its partitions.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, bytes, duration, moment, number, plural } from "./format.js";
import { warned } from "./page-overview.js";
import { damageTable, facts, link, panel, table, transactionLink } from "./pieces.js";

export const load = (query, signal) => get("topic", { topic: query.get("topic") }, signal);

export function render(data) {
  return {
    title: data.topic,
    lede: plural(data.partitions.length + data.damage.filter((at) => at.partition >= 0).length, "partition"),
    content: [
      damageTable(data.damage),
      panel("Topic", "", h("div", { class: "body" }, facts([
        ["Key", data.key ?? "none"],
        ["Clean-up policy", data.cleanup_policy],
        ["Retention", data.retention_ms < 0 ? "for ever" : duration(data.retention_ms)],
        ["Incarnation", String(data.incarnation)],
        ["Made", moment(data.created_ms)],
      ]))),
      table({
        caption: "Partitions",
        columns: ["Partition", "#Log start", "#Last stable", "#Log end", "#Held back", "#Records", "#Size", "#Files", "Held by", "Last append"],
        rows: data.partitions.map((at) => [
          link("partition", { topic: data.topic, partition: at.partition }, String(at.partition)),
          number(at.log_start), number(at.last_stable), number(at.log_end),
          warned(at.behind),
          number(at.records), bytes(at.bytes), number(at.files),
          at.held_by ? transactionLink(at.held_by) : at.producer_id >= 0 ? `producer ${at.producer_id}` : DASH,
          at.last_append_ms > 0 ? ago(at.last_append_ms) : "never",
        ]),
        empty: "None can be read.",
      }),
      table({
        caption: "Columns",
        columns: ["Column", "Type"],
        rows: data.columns.map(([name, type]) => [name, h("span", { class: "code" }, type)]),
        empty: "None: a record is its offset and time alone.",
      }),
    ],
  };
}
