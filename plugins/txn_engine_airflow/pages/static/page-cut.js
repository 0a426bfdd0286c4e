// One cut: what is inside, and how far each partition has gone on since.

import { get } from "./api.js";
import { h } from "./dom.js";
import { ago, moment, number, plural } from "./format.js";
import { keptUntil, topicsOf } from "./page-cuts.js";
import { badge, damageTable, link, notice, table, tiles, withCode } from "./pieces.js";

export const load = (query, signal) => get("cut", { number: query.get("number") }, signal);
export const everyMs = (data) => (data.is_read ? 3000 : 600);

export function render(data) {
  const { line } = data;
  return {
    title: `Cut ${number(line.number)}`,
    lede: `of ${line.every_topic ? "all topics" : plural(line.topic_count, "topic")}, and of all groups`,
    content: [
      tiles([
        ["Made", ago(line.created_ms), moment(line.created_ms, true)],
        ["Kept until", keptUntil(line), line.expires_ms < 0 ? "clean-up leaves it alone" : ""],
        ["Topics", number(line.topic_count), line.every_topic ? "all that there were" : topicsOf(line)],
        ["Records inside", recordsOf(data, data.is_read), data.is_read ? "" : "being counted"],
        ["Behind now", number(line.behind), line.behind < 0 ? "not known: not all can be read" : "offsets that readers may read, and that are not inside"],
      ]),
      damageTable(data.damage),
      table({
        caption: "Topics",
        columns: ["Topic", "#Partitions", "#Records inside", "#Behind now"],
        rows: data.topics.map((at) => [
          topicOf(at), at.added ? `${number(at.partitions)}, ${number(at.added)} added since` : number(at.partitions),
          recordsOf(at, data.is_read), number(at.behind),
        ]),
        empty: "None: there was no topic when it was made.",
      }),
      table({
        caption: "Partitions", note: "records below the offset are inside",
        columns: ["Topic", "#Partition", "#Log start then", "#Offset", "#Records inside", "#Last stable now", "#Behind now"],
        rows: data.partitions.map((at) => [
          at.is_deleted ? at.topic : link("partition", { topic: at.topic, partition: at.partition }, at.topic),
          String(at.partition), number(at.log_start), number(at.offset), recordsOf(at, at.records >= 0), number(at.last_stable), number(at.behind),
        ]),
        found: data.partitions.length + data.left_out,
        empty: "None.",
      }),
      notice("", "", h("p", null, withCode(
        `Read as of it: \`engine.scan(topic, cut=${line.number})\`, \`txn-engine cuts diff\`. Delete it: \`txn-engine cuts delete ${line.number} --execute\`; what only it needs goes 24 hours later.`))),
    ],
  };
}

/** How many records, "at most" where the cut goes through a compacted file. */
function recordsOf(at, isKnown) {
  if (!isKnown) return "…";
  return at.is_exact ? number(at.records) : `at most ${number(at.records)}`;
}

function topicOf(at) {
  return at.is_deleted ? [`${at.topic} `, badge("", "deleted topic")] : link("topic", { topic: at.topic }, at.topic);
}
