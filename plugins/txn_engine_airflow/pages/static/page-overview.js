// Overview: is anything held back, by whom, and does the machinery run?

import { abortActions, abortButton, abortHangingButton } from "./abort.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, bytes, duration, number, plural } from "./format.js";
import {
  airflowLink, badge, bars, link, notice, panel, partitionLink, runBadge, stateBadge, table, tiles, transactionLink,
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
  const { totals, now_ms: now } = overview;
  return {
    lede: overview.url,
    summary: `${plural(totals.open, "open transaction")}, ${totals.overdue} overdue, ${totals.hanging} hanging, ` +
      `${plural(totals.partitions_behind, "partition")} held back`,
    content: [
      totals.hanging > 0 && hangingTable(overview.hanging, page.me),
      figures(totals),
      h("div", { class: "columns", "data-key": "columns" },
        h("div", null,
          panel("Open transactions by age", plural(totals.open, "open transaction"),
            h("div", { class: "body" }, bars(overview.ages.map((group) => [group.label, group.transactions])))),
          heldTable(overview, now)),
        runsPanel(dags, now)),
      topicsTable(overview.topics, totals.topics, now),
      openTable(overview, page.me, now),
      groupsTable(overview, now),
    ],
  };
}

function figures(totals) {
  return tiles([
    ["Open transactions", number(totals.open), totals.overdue ? `${number(totals.overdue)} overdue` : "", totals.overdue ? "warn" : ""],
    ["Waiting for markers", number(totals.pending), "decided, not complete"],
    ["Hanging", number(totals.hanging), "no coordinator knows them", totals.hanging ? "bad" : ""],
    ["Furthest behind", number(totals.behind_max), `${plural(totals.partitions_behind, "partition")} held back`],
    ["Largest group lag", number(totals.lag_max), plural(totals.groups, "group")],
    ["Records", number(totals.records), bytes(totals.bytes)],
  ]);
}

export function hangingTable(hanging, me) {
  return h("div", { "data-key": "hanging" },
    notice("bad", `${plural(hanging.length, "transaction")} hanging`,
      h("p", null, "Open for longer than any transaction may be, and no coordinator knows of it: readers wait until somebody aborts it.")),
    table({
      caption: "Hanging transactions",
      columns: ["Partition", "#From offset", "#Producer", "#Epoch", "#Silent for", ...(me.can_abort ? ["Action"] : [])],
      rows: hanging.map((at) => [
        link("partition", { topic: at.topic, partition: at.partition, first: at.start_offset }, `${at.topic}-${at.partition}`),
        number(at.start_offset), at.producer_id, at.producer_epoch,
        duration(at.duration_ms), ...(me.can_abort ? [abortHangingButton(at)] : []),
      ]),
      empty: "",
    }));
}

function runsPanel(dags, now) {
  if (!dags.length) {
    return panel("Runs in Airflow", "", h("p", { class: "empty" }, "No DAG of the engine is here, or none that you may see."));
  }
  return table({
    caption: "Runs in Airflow",
    columns: ["DAG", "Last run", "When", "Latest, oldest first"],
    rows: dags.map((dag) => {
      const last = dag.runs[0];
      return [
        [airflowLink(`/dags/${encodeURIComponent(dag.dag_id)}`, dag.title), h("div", { class: "small quiet" }, did(dag))],
        h("div", { class: "badges" }, last ? runBadge(last.state) : "never",
          dag.is_paused && badge("warn", "Paused", "Airflow does not start it by itself")),
        last ? [ago(last.start_ms, now, true), last.end_ms >= 0 && h("span", { class: "quiet took" }, `took ${duration(last.end_ms - last.start_ms)}`)] : DASH,
        runMarks(dag.runs),
      ];
    }),
    empty: "",
  });
}

/** What the last finished run counted, at most three of its numbers; of snapshots, counted by topic, how many in all. */
function did(dag) {
  if (dag.dag_id === "txn_compute_lso") {
    const written = Object.values(dag.numbers).reduce((sum, count) => sum + count, 0);
    return written ? `${plural(written, "snapshot")} written` : "";
  }
  const counted = Object.entries(dag.numbers).filter(([, count]) => count > 0).slice(0, 3);
  if (counted.length) return counted.map(([name, count]) => `${name.replaceAll("_", " ")} ${number(count)}`).join(", ");
  return Object.keys(dag.numbers).length ? "nothing to do" : "";
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
  return h("span", { class: "runs", role: "img", "aria-label": `${failed} of the last ${runs.length} failed` }, marks);
}

function heldTable(overview, now) {
  return table({
    caption: "Who holds readers back",
    note: "read_committed readers stop at the last stable offset",
    columns: ["Partition", "#Behind", "#Last stable", "Held by", "#For"],
    rows: overview.held.map((at) => [
      partitionLink(at.topic, at.partition), number(at.behind), number(at.last_stable),
      at.transactional_id ? transactionLink(at.transactional_id) :
        [`producer ${at.producer_id}`, h("div", { class: "small quiet" }, "unknown to the coordinator")],
      duration(now - at.since_ms),
    ]),
    found: overview.totals.partitions_behind,
    empty: "Nobody: every partition is readable to its end.",
  });
}

export function topicsTable(topics, found, now) {
  return table({
    caption: "Topics",
    note: "offsets are the partitions' together",
    columns: ["Topic", "#Partitions", "#Log end", "#Last stable", "#Behind", "#Open", "#Records", "#Size", "Last append"],
    rows: topics.map((topic) => [
      link("topic", { topic: topic.topic }, topic.topic), number(topic.partitions), number(topic.log_end),
      number(topic.last_stable), topic.behind ? h("span", { class: "strong-warn" }, number(topic.behind)) : "0",
      number(topic.open_transactions), number(topic.records), bytes(topic.bytes),
      topic.last_append_ms > 0 ? ago(topic.last_append_ms, now) : "never",
    ]),
    found,
    empty: "There is no topic yet.",
  });
}

function openTable(overview, me, now) {
  return table({
    caption: "Oldest open transactions",
    columns: ["Transactional id", "State", "#Open for", "#Timeout", "#Partitions", "Topics", ...(me.can_abort ? ["Action"] : [])],
    rows: overview.open.map((line) => [
      transactionLink(line.transactional_id), stateBadge(line.state, line.is_overdue), duration(now - line.began_ms),
      duration(line.timeout_ms), number(line.partitions), line.topics.join(", "), ...(me.can_abort ? [abortButton(line)] : []),
    ]),
    found: overview.totals.open,
    empty: "No transaction is open.",
  });
}

function groupsTable(overview, now) {
  return table({
    caption: "Consumer groups",
    note: "lag against the last stable offset",
    columns: ["Group", "#Lag", "#Partitions", "#Pending", "Topics", "Last commit"],
    rows: overview.groups.map((group) => [
      link("group", { group: group.group_id }, group.group_id), number(group.lag), number(group.partitions),
      number(group.pending), group.topics.join(", "), group.committed_ms >= 0 ? ago(group.committed_ms, now) : DASH,
    ]),
    found: overview.totals.groups,
    empty: "No group has committed an offset.",
  });
}
