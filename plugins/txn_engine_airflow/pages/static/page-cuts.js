// Cuts: the newest of them, and how far the store has gone on since.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, moment, number, plural } from "./format.js";
import { badge, damageTable, link, notice, table, withCode } from "./pieces.js";

export const load = (_, signal) => get("cuts", {}, signal);

export function render({ cuts, older, trouble }) {
  const damaged = cuts.filter((cut) => cut.state === "damaged");
  const there = cuts.filter((cut) => cut.state !== "damaged");
  const made = there.filter((cut) => cut.state !== "open").length;
  return {
    lede: older ? `the newest ${number(made)}, and at most ${number(older)} older ones` : plural(made, "cut"),
    content: [
      trouble && notice("bad", "The cuts cannot be read", trouble),
      damaged.length > 0 && notice("bad", "Clean-up deletes nothing while a cut is damaged",
        h("p", null, withCode("What it keeps nobody knows. Restore its object from a copy, or delete it with `txn-engine cuts delete N --execute` and make another."))),
      damageTable(damaged.map((cut) => ({ topic: `cut ${cut.number}`, partition: -1, code: "", error: cut.error }))),
      table({
        caption: "Cuts",
        note: "offsets over all topics and groups in which no transaction is half inside; behind: offsets from there to what readers may read now",
        columns: ["Cut", "Made", "Kept until", "Topics", "#Partitions", "#Behind now"],
        rows: there.map(cutRow),
        empty: trouble ? "" : withCode("None yet. txn_write_markers makes one each hour, `txn-engine cuts create` one now."),
      }),
      older > 0 && notice("", "", withCode("`txn-engine cuts list` has all of them, `txn-engine cuts delete N --execute` deletes one.")),
    ],
  };
}

function cutRow(cut) {
  if (cut.state === "open") {
    const since = cut.created_ms < 0 ? DASH : ["since ", moment(cut.created_ms)];
    return [String(cut.number), since, badge("info", "Being made", "clean-up deletes nothing meanwhile; a maker that died is given up after an hour"), DASH, DASH, DASH];
  }
  return [
    link("cut", { number: cut.number }, String(cut.number)),
    ago(cut.created_ms), keptUntil(cut), topicsOf(cut), number(cut.partitions), number(cut.behind),
  ];
}

/** Until when clean-up leaves the cut alone. */
export function keptUntil(cut) {
  if (cut.state === "expired") return badge("warn", "Expired", "the next clean-up deletes it");
  return cut.expires_ms < 0 ? "it is deleted" : moment(cut.expires_ms);
}

export function topicsOf(cut) {
  if (cut.every_topic) return `all ${number(cut.topic_count)}`;
  const more = cut.topic_count - cut.topics.length;
  return `${cut.topics.join(", ")}${more > 0 ? ` and ${number(more)} more` : ""}`;
}
