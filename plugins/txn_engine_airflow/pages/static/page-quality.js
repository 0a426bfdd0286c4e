// Quality: the runs of the exactly-once suite, and how they went over time.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, duration, now, number, plural } from "./format.js";
import { airflowLink, badge, link, panel, table, tiles } from "./pieces.js";

const SHOWN = 60;
const SLOTS_MIN = 12;

export const everyMs = () => 10_000;
export const load = async (_, signal) => {
  const [runs, proofs] = await Promise.all([get("reports", {}, signal), get("proofs", {}, signal)]);
  return { ...runs, proofs };
};

export function render({ reports, without_report: others, proofs }) {
  const failed = others.filter((run) => run.state === "failed").length;
  const good = reports.filter((report) => report.success).length;
  const ended = reports.length + failed;
  const rows = [...reports.map(reportRow), ...others.map(runRow)].sort((a, b) => b.at - a.at);
  return {
    lede: plural(reports.length, "report"),
    summary: rows.length ? `Last run: ${rows[0].word}` : "No run",
    content: [
      rows.length > 0 && tiles([
        ["Last run", rows[0].word, rows[0].note, rows[0].look],
        ["Runs that passed", ended ? `${percent(good, ended)} %` : DASH,
          `${number(good)} of ${number(ended)} that ended${failed ? `; ${number(failed)} left no report` : ""}`, good < ended ? "bad" : ""],
      ]),
      proofs.topics.length > 0 && calendar(proofs),
      ended > 1 && chart(rows.filter((row) => row.share !== null).slice(0, SHOWN).reverse()),
      table({
        caption: "Runs", note: "newest first",
        columns: ["Run", "Outcome", "When", "#Passed", "#Failed", "#Not made", "#Not applicable", "#Records committed", "#Aborted", "#Took"],
        rows: rows.map((row) => row.cells),
        empty: "txn_verify_exactly_once has not run yet, and has left no report on this machine.",
      }),
    ],
  };
}

/** Whole per cent; 100 only where it is all of them, 0 only where it is none. */
function percent(part, all) {
  const rounded = Math.round((100 * part) / all);
  return part < all ? Math.min(rounded, 99) : rounded;
}

function reportRow(report) {
  return {
    at: report.made_ms,
    word: report.success ? "Passed" : report.failed ? "Failed" : "Not made",
    note: `${number(report.passed)} of ${plural(total(report), "check")} passed` +
      (report.warnings ? `, ${plural(report.warnings, "warning")}` : "") +
      (report.not_applicable ? `, ${number(report.not_applicable)} not applicable` : ""),
    look: report.success ? "" : "bad",
    share: report.passed / Math.max(total(report), 1),
    isGood: report.success,
    told: `${report.run_name}: ${number(report.passed)} of ${plural(total(report), "check")} passed`,
    cells: [
      link("report", { dag: report.dag_id, run: report.folder }, report.run_name), outcome(report), ago(report.made_ms),
      number(report.passed), bad(report.failed), bad(report.errored), number(report.not_applicable), number(report.committed_records),
      number(report.aborted_records), `${report.seconds.toFixed(1)} s`,
    ],
  };
}

const WITHOUT_REPORT = {
  failed: ["bad", "Failed", "it left no report: nothing was proved"],
  success: ["", "No report", "it ended well and left no report here: its check was skipped, or ran on another machine"],
  running: ["info", "Running", "no report yet"],
  queued: ["", "Queued", "no report yet"],
};

function runRow(run) {
  const [look, word, note] = WITHOUT_REPORT[run.state] ?? ["", run.state, "no report"];
  return {
    at: run.start_ms < 0 ? now() : run.start_ms,
    word, note, look: look === "bad" ? "bad" : "",
    share: run.state === "failed" ? 0 : null,
    isGood: false,
    told: `${run.run_id}: ${note}`,
    cells: [
      [airflowLink(`/dags/txn_verify_exactly_once/runs/${encodeURIComponent(run.run_id)}`, run.run_id)],
      [badge(look, word), h("div", { class: "small quiet roomy" }, note)], run.start_ms < 0 ? DASH : ago(run.start_ms),
      DASH, DASH, DASH, DASH, DASH, DASH, run.start_ms >= 0 && run.end_ms >= run.start_ms ? duration(run.end_ms - run.start_ms) : DASH,
    ],
  };
}

export function outcome(report) {
  if (report.success) return badge("good", "Passed");
  return report.failed ? badge("bad", "Failed") : badge("warn", "Not made");
}

const total = (report) => report.passed + report.failed + report.errored + report.warnings;
const bad = (count) => (count ? h("span", { class: "strong-bad" }, number(count)) : "0");

/** A bar a run that ended, the share of its checks that passed from the bottom up; one without a report is empty. */
function chart(rows) {
  const width = 600 / Math.max(rows.length, SLOTS_MIN);
  const bar = (row, at) => {
    const height = 100 * row.share;
    const place = { x: at * width + width * 0.1, width: width * 0.8 };
    return h("g", null,
      h("title", null, row.told),
      h("rect", { ...place, y: 0, height: 100 - height, class: row.isGood ? "run-other" : "run-failed" }),
      h("rect", { ...place, y: 100 - height, height, class: row.isGood ? "run-success" : "run-other" }));
  };
  const good = rows.filter((row) => row.isGood).length;
  return panel("Checks passed, run by run", `the latest ${number(rows.length)}, oldest on the left; red: what did not pass`, h("div", { class: "body" },
    h("svg", {
      class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img",
      "aria-label": `${good} of the last ${plural(rows.length, "run")} passed every check; the table below has the numbers`,
    }, rows.map(bar))));
}

const DAY_MS = 86_400_000;
const DAYS = 28;
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** The proofs that the store keeps, a row a topic, a square a day (UTC): all proven, some not, or none made. */
function calendar({ topics, left_off: more }) {
  const today = Math.floor(now() / DAY_MS);
  const days = Array.from({ length: DAYS }, (_, at) => today - DAYS + 1 + at);
  const head = h("tr", null, h("th", { scope: "col" }, "Topic"), h("th", { scope: "col" }, "Latest"),
    days.map((day) => h("th", { scope: "col", class: "day" },
      h("span", { class: (day - today) % 7 === 0 ? "date" : "unseen" }, DAY.format(day * DAY_MS)))));
  return panel("Proofs kept on the store", `the last ${DAYS} days, by UTC; red: a day with one that is not proven` +
    (more ? `; the first ${plural(topics.length, "topic")} of ${number(topics.length + more)}` : ""), h("div", { class: "scroll", role: "region", "aria-label": "Proofs by day, table" },
    h("table", { class: "calendar" }, h("caption", { class: "unseen" }, "Proofs by topic and day"), h("thead", null, head),
      h("tbody", null, topics.map((topic) => topicRow(topic, days))))));
}

function topicRow({ topic, proofs }, days) {
  const byDay = Map.groupBy(proofs.filter((proof) => proof.created_ms >= 0), (proof) => Math.floor(proof.created_ms / DAY_MS));
  const [latest] = proofs;
  const word = { proven: badge("good", "Proven"), "not proven": badge("bad", "Not proven"), damaged: badge("warn", "Damaged") }[latest.outcome];
  return h("tr", { "data-key": topic }, h("th", { scope: "row" }, link("topic", { topic }, topic)),
    h("td", null, word, " ", h("span", { class: "small quiet" },
      latest.created_ms < 0 ? `proof ${number(latest.number)}` : [`proof ${number(latest.number)}, `, ago(latest.created_ms)])),
    days.map((day) => daySquare(day, byDay.get(day) ?? [])));
}

function daySquare(day, proofs) {
  const good = proofs.filter((proof) => proof.outcome === "proven").length;
  const told = proofs.length ? `${DAY.format(day * DAY_MS)}: ${number(good)} of ${plural(proofs.length, "proof")} proven` : `${DAY.format(day * DAY_MS)}: no proof`;
  const look = !proofs.length ? "none" : good === proofs.length ? "good" : "bad";
  return h("td", { class: "day" }, h("span", { class: `square ${look}`, title: told }, h("span", { class: "unseen" }, told)));
}
