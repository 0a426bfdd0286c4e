// Quality: the runs of the exactly-once suite, and how they went over time.

import { get } from "./api.js";
import { h } from "./dom.js";
import { ago, number, plural } from "./format.js";
import { badge, link, panel, table, tiles } from "./pieces.js";

const SHOWN = 60;
const SLOTS_MIN = 12;

export const everyMs = () => 10_000;
export const load = (_, signal) => get("reports", {}, signal);

export function render({ reports }) {
  const good = reports.filter((report) => report.success).length;
  return {
    lede: plural(reports.length, "report"),
    summary: reports.length ? `Last run ${reports[0].success ? "passed" : "did not pass"}` : "No report",
    content: [
      reports.length > 0 && tiles([
        ["Last run", reports[0].success ? "Passed" : "Not passed", "", reports[0].success ? "" : "bad"],
        ["Checks passed in it", number(reports[0].passed), `of ${number(total(reports[0]))}`],
        ["Runs that passed", `${Math.round((100 * good) / reports.length)} %`, `${number(good)} of ${number(reports.length)}`],
      ]),
      reports.length > 1 && chart([...reports.slice(0, SHOWN)].reverse()),
      table({
        caption: "Reports", note: "newest first",
        columns: ["Run", "Outcome", "When", "#Passed", "#Failed", "#Not made", "#Not applicable", "#Records committed", "#Aborted", "#Took"],
        rows: reports.map((report) => [
          link("report", { dag: report.dag_id, run: report.folder }, report.run_name), outcome(report), ago(report.made_ms, Date.now()),
          number(report.passed), bad(report.failed), bad(report.errored), number(report.not_applicable), number(report.committed_records),
          number(report.aborted_records), `${report.seconds.toFixed(1)} s`,
        ]),
        empty: "txn_verify_exactly_once has left no report on this machine yet.",
      }),
    ],
  };
}

export function outcome(report) {
  if (report.success) return badge("good", "Passed");
  return report.failed ? badge("bad", "Failed") : badge("warn", "Not made");
}

const total = (report) => report.passed + report.failed + report.errored;
const bad = (count) => (count ? h("span", { class: "strong-bad" }, number(count)) : "0");

function chart(reports) {
  const width = 600 / Math.max(reports.length, SLOTS_MIN);
  const bar = (report, at) => {
    const all = Math.max(total(report), 1);
    const rate = report.passed / all;
    const height = Math.max(100 * rate, 1);
    return h("g", null,
      h("title", null, `${report.run_name}: ${report.passed} of ${all} checks passed`),
      h("rect", { x: at * width + width * 0.1, y: 0, width: width * 0.8, height: 100 - height, class: report.success ? "run-other" : "run-failed" }),
      h("rect", { x: at * width + width * 0.1, y: 100 - height, width: width * 0.8, height, class: report.success ? "run-success" : "run-other" }));
  };
  const good = reports.filter((report) => report.success).length;
  return panel("Checks passed, run by run", `the latest ${number(reports.length)}, oldest on the left`, h("div", { class: "body" },
    h("svg", {
      class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img",
      "aria-label": `${good} of the last ${reports.length} runs passed every check; the table below has the numbers`,
    }, reports.map(bar))));
}
