// One consumer group: where it stands in each partition, and how it came there.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, moment, number } from "./format.js";
import { badge, partitionLink, table, tiles } from "./pieces.js";

export const load = (query, signal) => get("group", { group: query.get("group") }, signal);
export const everyMs = (data) => (data.is_history_read ? 3000 : 600);

export function render(data) {
  const { line, now_ms: now } = data;
  return {
    title: line.group_id,
    lede: "Consumer group",
    summary: `Lag ${line.lag >= 0 ? line.lag : "not known"}`,
    content: [
      tiles([
        ["Lag", number(line.lag), lagNote(data)],
        ["Partitions", number(line.partitions)],
        ["Pending commits", number(line.pending), line.pending ? "a transaction is between output and decision" : "", line.pending ? "warn" : ""],
        ["Last commit", line.committed_ms >= 0 ? ago(line.committed_ms, now) : DASH],
      ]),
      table({
        caption: "Partitions",
        columns: ["Partition", "#Committed", "#Pending", "#Position", "#Last stable", "#Log end", "#Lag", "Committed", "Metadata"],
        rows: data.partitions.map((at) => [
          place(at), number(at.committed),
          at.pending >= 0 ? h("span", { class: "strong-warn", title: `by producer ${at.pending_producer_id}` }, number(at.pending)) : DASH,
          number(at.position), number(at.last_stable), number(at.log_end), number(at.lag),
          at.committed_ms >= 0 ? ago(at.committed_ms, now) : DASH, at.metadata || DASH,
        ]),
        empty: "",
      }),
      table({
        caption: "Commits", note: "newest first, as far back as the last rows of the group's log go",
        columns: ["When", "Partition", "#Offset", "By"],
        rows: data.history.map((commit) => [
          moment(commit.time_ms), place(commit),
          commit.offset < 0 ? "forgotten" : number(commit.offset),
          commit.producer_id >= 0 ? `producer ${commit.producer_id}, in a transaction` : "the consumer",
        ]),
        empty: data.is_history_read ? "None among the last rows of its log, which it shares with other groups." : "Being read…",
      }),
    ],
  };
}

/** The partition; of a topic that was deleted there is nothing to go to, or another topic of its name. */
function place(at) {
  if (!at.is_deleted) return partitionLink(at.topic, at.partition);
  return [`${at.topic}-${at.partition} `, badge("", "deleted topic")];
}

function lagNote({ line, partitions }) {
  if (line.lag < 0) return "not known: nothing is committed in a topic that is there";
  return partitions.some((at) => at.lag < 0) ? "to the last stable offsets, where it is known" : "to the last stable offsets";
}
