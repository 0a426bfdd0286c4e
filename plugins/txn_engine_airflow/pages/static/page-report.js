// One run of the exactly-once suite: its checks, and the full report where the reader may see records.

import { get } from "./api.js";
import { h } from "./dom.js";
import { moment, number, plural } from "./format.js";
import { outcome } from "./page-quality.js";
import { airflowLink, badge, facts, link, panel, withCode } from "./pieces.js";

const LOOKS = { passed: "good", failed: "bad", errored: "warn", warning: "warn", not_applicable: "" };
const WORDS = { passed: "Passed", failed: "Failed", errored: "Not made", warning: "Warning", not_applicable: "Not applicable" };
const WORST_FIRST = ["failed", "errored", "warning", "not_applicable", "passed"];

export const everyMs = () => 60_000;
export const load = (query, signal) => get("report", { dag: query.get("dag"), run: query.get("run") }, signal);

export function render(report) {
  const checks = [...report.checks].sort((a, b) => WORST_FIRST.indexOf(a.status) - WORST_FIRST.indexOf(b.status));
  const files = ["report-files", report.dag_id, report.folder, "index.html"].map(encodeURIComponent).join("/");
  return {
    title: report.run_name,
    lede: [link("quality", {}, "Quality"), ", report"],
    content: [
      panel("Run", "", h("div", { class: "body" }, facts([
        ["Outcome", outcome(report)],
        ["When", moment(report.made_ms, true)],
        ["Took", `${report.seconds.toFixed(1)} s`],
        ["Records committed", number(report.committed_records)],
        ["Records aborted", number(report.aborted_records)],
        ["DAG", airflowLink(`/dags/${encodeURIComponent(report.dag_id)}`, report.dag_id)],
      ]))),
      fullReport(report, files),
      panel("Checks", plural(checks.length, "check"), checks.map((check) =>
        h("div", { class: "check" },
          h("h3", null, badge(LOOKS[check.status], WORDS[check.status]), " ", check.description),
          h("p", null, `${check.section}: seen ${check.observed}, expected ${check.expected}`),
          check.status !== "passed" && [h("p", null, withCode(check.meaning)), h("p", null, withCode(check.action))]))),
    ],
  };
}

function fullReport(report, files) {
  if (!report.has_page) return null;
  if (!report.can_open) {
    return panel("Full report", "", h("p", { class: "empty" },
      "It shows records, and so is open to those who may view, in Airflow, the connection that it was made of. If it names none, it is open to nobody."));
  }
  return h("section", { "aria-labelledby": "full" },
    h("div", { class: "actions" }, h("h2", { id: "full" }, "Full report"), h("a", { href: files }, "Open it alone")),
    h("iframe", { class: "report", src: files, title: `Full report of ${report.run_name}`, sandbox: "allow-same-origin" }));
}
