// One dead-letter topic: why rows could not be used, and a few of them for those who may see records.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, moment, number, plural } from "./format.js";
import { reasonsTable, topicOf } from "./page-dead-letters.js";
import { airflowLink, badge, damageTable, field, link, notice, panel, table, tiles, withCode } from "./pieces.js";

export const load = (query, signal) => get("dead-letter-topic", { topic: query.get("topic") }, signal);
export const everyMs = (data) => (data.is_read ? 3000 : 600);

export function actions(page) {
  const letters = async (partition, offset, count) => {
    try {
      page.letters = await get("letters", { topic: page.data.line.topic, partition, offset, count });
      page.letters.count = count;
      page.say(`${plural(page.letters.letters.length, "letter")} shown`);
    } catch (error) {
      page.letters = { trouble: error.message };
      page.say(error.message);
    }
    page.redraw();
    document.getElementById("letters")?.scrollIntoView({ block: "start" });
  };
  return {
    letters: ({ elements: { partition, offset, count } }) => letters(partition.value, offset.value, count.value),
    "letters-at": ({ dataset }) => letters(dataset.partition, dataset.offset, 20),
    older: ({ dataset }) => letters(dataset.partition, dataset.offset, dataset.count),
  };
}

export function render(data, page) {
  const { line } = data;
  const canShow = page.me.can_see_records;
  return {
    title: line.topic,
    lede: [link("dead-letters", {}, "Dead letters"), ", ", link("topic", { topic: line.topic }, plural(data.partitions.length, "partition"))],
    summary: `${plural(line.waiting, "dead letter")} waiting`,
    content: [
      damageTable(data.damage),
      tiles([
        ["Waiting", number(line.waiting), line.waiting < 0 ? "not known: a group's log cannot be read" : line.waiting ? "to be replayed" : "nothing to replay", line.waiting > 0 ? "warn" : ""],
        ["Replayed", number(line.replayed), "loaded since, or come back as a new letter"],
        ["Letters", number(line.letters), line.counted < line.letters && data.is_read ? `the newest ${number(line.counted)} are counted by reason` : ""],
        ["Since", line.counted ? ago(line.first_failed_ms) : DASH, line.counted < line.letters ? "or earlier" : ""],
        ["Newest", line.counted ? ago(line.last_failed_ms) : DASH],
      ]),
      reasonsTable(data, [line], { canShow }),
      canShow ? lettersPanel(data, page) : panel("Letters", "", h("p", { class: "empty" },
        "What the rows hold is shown to those who may view the store's connection in Airflow.")),
      line.waiting > 0 && notice("", "", h("p", null, withCode(
        `Mend and load them: \`txn-engine dead-letters show ${line.topic} --repair > repaired.jsonl\`, then \`txn-engine dead-letters replay ${line.topic} --repaired repaired.jsonl\`.`))),
    ],
  };
}

function lettersPanel(data, page) {
  const newest = data.partitions.reduce((one, other) => (other.last_append_ms > one.last_append_ms ? other : one), data.partitions[0]);
  return h("section", { class: "panel", id: "letters", "aria-label": "Letters", "data-key": "letters" },
    h("header", null, h("h2", null, "Letters"), h("p", null, "read from the store when you ask; the newest first")),
    h("div", { class: "body" },
      newest && h("form", { class: "filters", "data-submit": "letters", "aria-label": "Which letters to show" },
        data.partitions.length > 1
          ? field("Partition", h("select", { id: "l-partition", name: "partition" }, data.partitions.map((at) =>
            h("option", { value: at.partition, selected: at.partition === newest.partition }, String(at.partition)))))
          : h("input", { type: "hidden", name: "partition", value: newest.partition }),
        field("From offset back", h("input", { id: "l-offset", name: "offset", type: "number", min: 0, placeholder: "the newest" })),
        field("Letters", h("input", { id: "l-count", name: "count", type: "number", min: 1, max: 50, required: true, value: 20 })),
        h("button", { type: "submit", class: "button" }, "Show letters")),
      page.letters?.trouble && h("p", { class: "empty strong-bad" }, page.letters.trouble)),
    page.letters?.letters && lettersTable(page.letters));
}

function lettersTable({ topic, partition, letters, older, cut_at: cutAt, count }) {
  const isCut = letters.some((letter) => letter.is_cut);
  return [
    table({
      caption: `Letters of ${topic}-${partition}`,
      note: `what is not printable stands in escapes${isCut ? `; values are cut at ${number(cutAt)} characters, where … stands` : ""}`,
      columns: ["#Offset", "Row", "Reason", "From", "For topic", "Failed", "#Tries", "Run"],
      rows: letters.map((letter) => [
        link("partition", { topic, partition, first: letter.offset }, letter.offset), rowOf(letter),
        h("div", { class: "wrap" }, letter.reason, h("div", { class: "small quiet" }, letter.error_class)),
        sourceOf(letter), topicOf(letter.topic, letter.is_topic), failedAt(letter.failed_at), letter.tries, runOf(letter),
      ]),
      empty: "No letter lies there.",
    }),
    older >= 0 && h("p", { class: "more" }, h("button", { type: "button", class: "button small", "data-action": "older", "data-partition": partition, "data-offset": older, "data-count": count }, "Older letters")),
  ];
}

/** The row as the file or the topic had it. */
function rowOf({ columns, raw, reading }) {
  return h("div", { class: "wrap roomy", title: reading ? `read as ${reading}` : null },
    columns !== null && h("code", null, columns),
    raw !== null && [h("div", { class: "small quiet" }, columns === null ? "bytes that could not be cut into columns" : "its bytes"), h("code", null, raw)],
    columns === null && raw === null && badge("", "nothing"));
}

function sourceOf(letter) {
  if (letter.source_file !== null) return h("div", { class: "wrap" }, `${letter.source_file}, line ${letter.source_line ?? DASH}`);
  if (letter.source_topic === null) return DASH;
  const partition = letter.source_partition ?? "";
  const place = letter.is_source
    ? link("partition", { topic: letter.source_topic, partition, first: letter.source_offset ?? 0 }, `${letter.source_topic}-${partition}`)
    : `${letter.source_topic}-${partition}`;
  return [place, ` at ${letter.source_offset ?? DASH}`];
}

function failedAt(text) {
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? text : moment(ms);
}

/** The run that failed; a link to it where Airflow has it. */
function runOf({ run_id: runId, dag_run: run }) {
  if (runId === null) return DASH;
  if (run === null) return h("div", { class: "wrap" }, runId);
  const [dag, id] = run.map(encodeURIComponent);
  return h("div", { class: "wrap" }, airflowLink(`/dags/${dag}/runs/${id}`, runId));
}
