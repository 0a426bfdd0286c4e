// One consumer group: where it stands in each partition, and how it came there.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, moment, number, plural } from "./format.js";
import { warned } from "./page-overview.js";
import { badge, damagedHistory, partitionLink, table, tiles } from "./pieces.js";

export const load = (query, signal) => get("group", { group: query.get("group") }, signal);
export const everyMs = (data) => (data.is_history_read ? 3000 : 600);

export function render(data) {
  const { line } = data;
  return {
    title: line.group_id,
    lede: "Consumer group",
    summary: `Lag ${line.lag >= 0 ? number(line.lag) : "not known"}${line.held_back > 0 ? `, ${number(line.held_back)} held back` : ""}`,
    content: [
      tiles([
        ["Lag", number(line.lag), lagNote(data), line.gone > 0 || line.beyond > 0 ? "bad" : ""],
        ["Held back", number(line.held_back), line.held_back > 0 ? "offsets that wait for an open transaction" : "", line.held_back > 0 ? "warn" : ""],
        ["Partitions", number(line.partitions)],
        ["Skipped", number(line.skipped), line.skipped > 0 ? "offsets that were deleted before the group read them" : "", line.skipped > 0 ? "bad" : ""],
        ["Pending commits", number(line.pending), line.pending ? "a transaction is between output and decision" : "", line.pending ? "warn" : ""],
        ["Last commit", line.committed_ms >= 0 ? ago(line.committed_ms) : DASH],
      ]),
      table({
        caption: "Partitions",
        columns: ["Partition", "#Committed", "#Pending", "#Position", "#Last stable", "#Log end", "#Lag", "#Held back", "#Beyond the end", "#Skipped", "When committed", "Metadata"],
        rows: data.partitions.map((at) => [
          place(at), number(at.committed),
          at.pending >= 0 ? h("span", { class: "strong-warn", title: `by producer ${at.pending_producer_id}` }, number(at.pending)) : DASH,
          number(at.position), number(at.last_stable), number(at.log_end), number(at.lag), warned(at.held_back),
          warned(at.beyond), warned(at.skipped),
          at.committed_ms >= 0 ? ago(at.committed_ms) : DASH, at.metadata || DASH,
        ]),
        empty: "",
      }),
      damagedHistory(data.history_damaged),
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

function lagNote({ line }) {
  if (line.beyond > 0) return "the group is beyond the end of a log, where nobody has read";
  if (line.lag < 0) return "not known: nothing is committed in a topic that is there";
  if (line.gone > 0) return `${number(line.gone)} of these offsets were deleted before the group read them`;
  return line.unknown ? `to the last stable offsets; ${plural(line.unknown, "partition")} not known` : "offsets to the last stable ones";
}
