// One transactional id: its time line, its partitions, what came before.

import { abortActions, abortButton } from "./abort.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, duration, moment, number, plural, since } from "./format.js";
import { timeout } from "./page-overview.js";
import { badge, damagedHistory, facts, notice, otherName, panel, partitionLink, stateBadge, table } from "./pieces.js";

export async function load(query, signal) {
  return get("transaction", { id: query.get("id") }, signal);
}

export const everyMs = (data) => (data.is_history_read ? 3000 : 600);

export function actions(page) {
  return abortActions((text) => {
    page.say(text);
    page.refresh();
  });
}

export function render(data, page) {
  const { line, current } = data;
  return {
    title: line.transactional_id,
    lede: [stateBadge(line.state, line.is_overdue), " ", otherName(line)],
    summary: `State ${line.state}`,
    content: [
      line.is_overdue && notice("warn", "Open for longer than its timeout",
        h("p", null, "The next run of txn_coordinator_sweep aborts it. Is that DAG running?")),
      panel("Transactional id", "", h("div", { class: "body" },
        facts([
          ["Producer id", String(line.producer_id)],
          ["Producer epoch", String(line.producer_epoch)],
          ["Timeout", timeout(line.timeout_ms)],
          ["Coordinator partition", String(data.coordinator_partition)],
          ["Last change", ago(line.updated_ms)],
          [line.state === "Ongoing" ? "Open for" : "Unfinished for", line.began_ms >= 0 ? since(line.began_ms) : null],
        ]),
        page.me.can_abort && line.state === "Ongoing" &&
          h("p", { class: "actions" }, abortButton(line, "Abort the transaction")))),
      current ? passage(current) : !data.is_history_read || panel("Time line", "", h("p", { class: "empty" },
        "No transaction is open under this id, and the last rows of its coordinator log hold none that ended.")),
      damagedHistory(data.history_damaged),
      !data.is_history_read && h("p", { class: "wait" }, "The time line is being read…"),
      current && partitions(current),
      earlier(data),
      data.run_ids.length > 0 && panel("Committed runs", data.run_ids_complete ? "" : "the latest 100",
        h("div", { class: "body" }, h("ul", null, data.run_ids.map((run) => h("li", { class: "code wrap" }, run))))),
    ],
  };
}

function passage(current) {
  const last = current.steps.length - 1;
  return panel(!current.is_complete ? "Time line" : "Time line of the last transaction",
    current.began_ms >= 0 && current.ended_ms >= 0 ? `took ${duration(current.ended_ms - current.began_ms)}` : "",
    h("div", { class: "body" },
      h("ol", { class: "steps" }, current.steps.map((step, at) =>
        h("li", { class: step.is_done ? (step.name === "Decided: abort" ? "bad" : "done") : "" },
          h("h3", null, step.name, !step.is_done && [" ", badge("", at === last ? "not yet" : "waiting")]),
          h("p", { class: "when" }, step.time_ms >= 0 ? [moment(step.time_ms), ", ", ago(step.time_ms)] : step.is_done ? "time no longer known" : ""),
          step.detail && h("p", { class: "what" }, step.detail),
          step.name === "Markers" && markers(current.partitions))))));
}

const MARKERS_SHOWN = 60;

function markers(parts) {
  return h("ul", { class: "markers" },
    parts.slice(0, MARKERS_SHOWN).map((part) =>
      h("li", null, `${part.topic}-${part.partition} `, badge(MARKERS[part.marker], part.marker),
        part.marker_ms >= 0 && [" ", moment(part.marker_ms)])),
    parts.length > MARKERS_SHOWN && h("li", null, `and ${number(parts.length - MARKERS_SHOWN)} more, below`));
}

const MARKERS = { written: "good", missing: "warn", "not needed": "" };

function partitions(current) {
  return table({
    caption: "Partitions of the transaction",
    note: plural(current.partitions.length, "partition"),
    columns: ["Partition", "#First offset", "Marker", "Marker written"],
    rows: current.partitions.map((part) => [
      part.topic.startsWith("__") ? `${part.topic}-${part.partition}` : partitionLink(part.topic, part.partition),
      number(part.first_offset),
      current.outcome === "open" ? "no decision yet" : badge(MARKERS[part.marker], part.marker),
      part.marker_ms >= 0 ? moment(part.marker_ms) : DASH,
    ]),
    empty: current.outcome === "open" ? "None was added yet." : "It had none, or the log no longer says which.",
  });
}

function earlier(data) {
  return table({
    caption: "Earlier transactions of this id",
    note: "as far back as the last rows of its coordinator log go",
    columns: ["Began", "Outcome", "#Took", "#Partitions", "Run id"],
    rows: data.earlier.map((each) => [
      each.began_ms >= 0 ? moment(each.began_ms) : DASH,
      each.outcome === "commit" ? badge("good", "Committed") : each.outcome === "abort" ? badge("", "Aborted") : badge("warn", "Replaced"),
      each.ended_ms >= 0 && each.began_ms >= 0 ? duration(each.ended_ms - each.began_ms) : DASH,
      number(each.partitions.length),
      each.run_id || DASH,
    ]),
    empty: data.is_history_read ? "None." : "Being read…",
  });
}
