// Overview: is anything held back, by whom, and does the machinery run?

import { abortActions, abortButton, abortHangingButton } from "./abort.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, bytes, duration, number, plural, since } from "./format.js";
import {
  airflowLink, badge, bars, damageTable, link, notice, panel, partitionLink, runBadge, stateBadge, table, tiles,
  transactionLink,
} from "./pieces.js";

export async function load(_, signal) {
  const [overview, runs] = await Promise.all([get("overview", {}, signal), get("runs", {}, signal)]);
  return { overview, dags: runs.dags };
}

export function actions(page) {
  return abortActions((text) => {
    page.say(text);
    page.refresh();
  });
}

export function render({ overview, dags }, page) {
  const { totals } = overview;
  return {
    lede: overview.url,
    summary: `${plural(totals.open, "open transaction")}, ${totals.overdue} overdue, ${totals.hanging} hanging, ` +
      `${plural(totals.partitions_behind, "partition")} held back`,
    content: [
      damageTable(overview.damage, overview.damaged),
      overview.foreign.length > 0 && notice("warn", "Foreign folders",
        h("p", null, `Below topics/, and no topic's: ${overview.foreign.join(", ")}. They hurt nothing; look at who put them there.`)),
      totals.hanging > 0 && hangingTable(overview.hanging, overview.now_ms, page.me),
      figures(totals),
      h("div", { class: "columns", "data-key": "columns" },
        h("div", null,
          panel("Open transactions by age", plural(totals.open, "open transaction"),
            h("div", { class: "body" }, bars(overview.ages.map((group) => [group.label, group.transactions])))),
          heldTable(overview)),
        runsPanel(dags)),
      topicsTable(overview.topics, totals.topics),
      openTable(overview, page.me),
      groupsTable(overview),
    ],
  };
}

function figures(totals) {
  return tiles([
    ["Open transactions", number(totals.open), totals.overdue ? `${number(totals.overdue)} overdue` : "", totals.overdue ? "warn" : ""],
    ["Waiting for markers", number(totals.pending), "decided, not complete"],
    ["Hanging", number(totals.hanging), "no coordinator knows them", totals.hanging ? "bad" : ""],
    ["Most held back", number(totals.behind_max), totals.partitions_behind ?
      `offsets; ${plural(totals.partitions_behind, "partition")}, ${plural(totals.waiting_records, "record")} waiting` : "readers get to every log's end",
      totals.waiting_records ? "warn" : ""],
    ["Largest group lag", number(totals.lag_max), totals.held_back_max > 0 ?
      `and up to ${number(totals.held_back_max)} held back` : plural(totals.groups, "group")],
    ["Records", number(totals.records), `readable, ${bytes(totals.bytes)}`],
    ...(totals.letter_topics ? [["Dead letters", link("dead-letters", {}, number(totals.letters_waiting)),
      `wait in ${plural(totals.letter_topics, "topic")}`, totals.letters_waiting ? "warn" : ""]] : []),
  ]);
}

/** `seenMs`: when they were seen; they have been silent for longer by now. */
export function hangingTable(hanging, seenMs, me) {
  return h("div", { "data-key": "hanging" },
    notice("bad", `${plural(hanging.length, "transaction")} hanging`,
      h("p", null, "Open for longer than any transaction may be, and no coordinator knows of it: readers wait until somebody aborts it.")),
    table({
      caption: "Hanging transactions",
      columns: ["Partition", "#From offset", "#Producer", "#Epoch", "#Silent for", ...(me.can_abort ? ["Action"] : [])],
      rows: hanging.map((at) => [
        link("partition", { topic: at.topic, partition: at.partition, first: at.start_offset }, `${at.topic}-${at.partition}`),
        number(at.start_offset), at.producer_id, at.producer_epoch,
        since(seenMs - at.duration_ms), ...(me.can_abort ? [abortHangingButton(at)] : []),
      ]),
      empty: "",
    }));
}

function runsPanel(dags) {
  if (!dags.length) {
    return panel("Runs in Airflow", "", h("p", { class: "empty" }, "No DAG of the engine is here, or none that you may see."));
  }
  return table({
    caption: "Runs in Airflow",
    columns: ["DAG", "Last run", "When", "Latest, oldest first"],
    rows: dags.map((dag) => {
      const last = dag.runs[0];
      return [
        [airflowLink(`/dags/${encodeURIComponent(dag.dag_id)}`, dag.title), h("div", { class: "small quiet" }, dag.did && !dag.did_in_last ? `before: ${dag.did}` : dag.did)],
        h("div", { class: "badges" }, last ? runBadge(last.state) : "never",
          dag.is_paused && badge("warn", "Paused", "Airflow does not start it by itself")),
        last ? [ago(last.start_ms, true), took(last)] : DASH,
        runMarks(dag.runs),
      ];
    }),
    empty: "",
  });
}

const NO_TIMEOUT = 2 ** 31 - 1;

/** A transaction's timeout; one that waits for another system's decision has none. */
export const timeout = (ms) => (ms === NO_TIMEOUT ? "none" : duration(ms));

export const LAG_NOTE = "lag: offsets to the last stable one; held back: those after it, which wait for an open transaction";
export const GROUP_COLUMNS = ["Group", "#Lag", "#Held back", "#Partitions", "#Pending", "Topics", "Last commit"];

export function groupRow(group) {
  return [
    link("group", { group: group.group_id }, group.group_id),
    group.unknown && group.lag >= 0 ? [number(group.lag), h("div", { class: "small quiet" }, `${number(group.unknown)} not known`)] : number(group.lag),
    warned(group.held_back), number(group.partitions), warned(group.pending), group.topics.join(", "),
    group.committed_ms >= 0 ? ago(group.committed_ms) : DASH,
  ];
}

/** A number that somebody should see where it is not 0. */
export const warned = (count) => (count > 0 ? h("span", { class: "strong-warn" }, number(count)) : number(count));

/** How long a run took, or has taken so far. */
function took(run) {
  if (run.start_ms < 0) return null;
  if (run.end_ms < run.start_ms) return ["running", "queued"].includes(run.state) && h("span", { class: "quiet took" }, "still running");
  return h("span", { class: "quiet took" }, `took ${duration(run.end_ms - run.start_ms)}`);
}

function runMarks(runs) {
  const failed = runs.filter((run) => run.state === "failed").length;
  const marks = [...runs].reverse().map((run) => {
    const kind = ["success", "failed", "running"].includes(run.state) ? run.state : "other";
    return h("svg", { viewBox: "0 0 10 16" },
      h("title", null, `${run.run_id}: ${run.state}`),
      h("rect", { class: `run-${kind}`, width: 10, height: 16, rx: 2 }),
      kind === "failed" && h("path", { d: "M2.5 5L7.5 11 M7.5 5L2.5 11" }));
  });
  return h("span", { class: "runs", role: "img", "aria-label": runs.length ? `${failed} of the last ${plural(runs.length, "run")} failed` : "no run yet" }, marks);
}

function heldTable(overview) {
  return table({
    caption: "Who holds readers back",
    note: "read_committed readers stop at the last stable offset",
    columns: ["Partition", "Held by", "#For", "#Held back", "#Records waiting"],
    rows: overview.held.map((at) => [
      partitionLink(at.topic, at.partition),
      at.transactional_id ? transactionLink(at.transactional_id) :
        [`producer ${at.producer_id}`, h("div", { class: "small quiet" }, "no coordinator row has it")],
      at.transactional_id ? since(at.since_ms) : [since(at.since_ms), h("div", { class: "small quiet" }, "since its last write")],
      number(at.behind), number(at.waiting_records),
    ]),
    found: overview.totals.partitions_behind,
    empty: "Nobody: every partition is readable to its end.",
  });
}

function topicName(topic) {
  const name = link("topic", { topic: topic.topic }, topic.topic);
  const letters = topic.letters_waiting > 0 && link("dead-letter-topic", { topic: topic.topic },
    badge("warn", plural(topic.letters_waiting, "dead letter"), "rows that could not be used, and wait to be replayed"));
  if (!topic.damaged) return letters ? h("div", { class: "badges" }, name, letters) : name;
  const what = topic.damaged < 0 ? "The topic cannot be read" : `${plural(topic.damaged, "partition")} cannot be read, and not in the numbers`;
  return h("div", { class: "badges" }, name, letters, badge("bad", "Damaged", what));
}

/** A topic's cells; of one that cannot be read at all, only how many partitions it has. */
function topicRow(topic) {
  const known = topic.damaged >= 0 && (topic.damaged === 0 || topic.damaged < topic.partitions);
  const numbers = [
    warned(topic.behind), number(topic.records), bytes(topic.bytes), number(topic.partitions), number(topic.unfinished),
    number(topic.last_stable), number(topic.log_end), topic.last_append_ms > 0 ? ago(topic.last_append_ms) : "never",
  ];
  return [topicName(topic), ...numbers.map((cell, at) => (known || (at === 3 && topic.partitions) ? cell : null))];
}

export function topicsTable(topics, found) {
  return table({
    caption: "Topics",
    note: "its partitions together; records and size are what readers get",
    columns: ["Topic", "#Held back", "#Records", "#Size", "#Partitions", "#Unfinished", "#Last stable", "#Log end", "Last append"],
    rows: topics.map(topicRow),
    found,
    empty: "There is no topic yet.",
  });
}

function openTable(overview, me) {
  return table({
    caption: "Oldest open transactions",
    columns: ["Transactional id", "State", "#Open for", "#Timeout", "#Partitions", "Topics", ...(me.can_abort ? ["Action"] : [])],
    rows: overview.open.map((line) => [
      transactionLink(line.transactional_id), stateBadge(line.state, line.is_overdue), since(line.began_ms),
      timeout(line.timeout_ms), number(line.partitions), line.topics.join(", "), ...(me.can_abort ? [abortButton(line)] : []),
    ]),
    found: overview.totals.open,
    empty: "No transaction is open.",
  });
}

function groupsTable(overview) {
  return table({
    caption: "Consumer groups",
    note: LAG_NOTE,
    columns: GROUP_COLUMNS,
    rows: overview.groups.map(groupRow),
    found: overview.totals.groups,
    empty: "No group has committed an offset.",
  });
}
