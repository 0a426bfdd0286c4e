// One partition: its offsets as a strip, who writes, what was aborted, its files, and a few records.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, bytes, now, number, plural } from "./format.js";
import { badge, facts, field, link, panel, table, tiles, transactionLink } from "./pieces.js";

const KINDS = {
  committed: "Committed",
  open: "Open",
  aborted: "Aborted",
  compacted: "Compacted",
  marker: "Marker or control row",
  trimmed: "Trimmed",
};
const LOOKS = { committed: "good", open: "warn", aborted: "bad", compacted: "info" };

export async function load(query, signal) {
  const { topic, partition, first, last } = Object.fromEntries(query);
  return get("partition", { topic, partition, first, last }, signal);
}

export function actions(page) {
  const range = (first, last) => {
    const query = new URLSearchParams(page.query);
    for (const [name, value] of [["first", first], ["last", last]]) {
      if (value === "" || value < 0) query.delete(name);
      else query.set(name, value);
    }
    return page.setQuery(query);
  };
  return {
    range: (form) => range(form.elements.first.value, form.elements.last.value),
    whole: (button) => {
      button.form.reset();
      for (const name of ["first", "last"]) button.form.elements[name].value = "";
      range(-1, -1);
    },
    sample: async (form) => {
      const { offset, count, uncommitted } = form.elements;
      const asked = {
        topic: page.data.topic, partition: page.data.line.partition,
        offset: offset.value, count: count.value, uncommitted: uncommitted.checked,
      };
      try {
        page.sample = await get("records", asked);
        page.say(`${plural(page.sample.records.length, "record")} shown`);
      } catch (error) {
        page.sample = { trouble: error.message };
        page.say(error.message);
      }
      page.redraw();
    },
  };
}

export function render(data, page) {
  const { line } = data;
  return {
    title: `${data.topic}-${line.partition}`,
    lede: [link("topic", { topic: data.topic }, data.topic), `, partition ${line.partition}`],
    summary: `Log end ${line.log_end}, last stable offset ${line.last_stable}`,
    content: [
      tiles([
        ["Log start", number(line.log_start)],
        ["Last stable offset", number(line.last_stable), line.behind ? `${number(line.behind)} held back` : "at the log's end", line.behind ? "warn" : ""],
        ["Log end", number(line.log_end)],
        ["Records", number(line.records), line.waiting_records ? `readable; ${number(line.waiting_records)} more wait` : "readable"],
        ["Size", bytes(line.bytes), `of these records, in ${plural(line.files, "file")}`],
      ]),
      stripPanel(data, page),
      table({
        caption: "Producers", note: "the last to write first",
        columns: ["Producer", "Transactional id", "#Epoch", "#Last sequence", "#Coordinator epoch", "#Open from", "Last append"],
        rows: data.producers.map((at) => [
          String(at.producer_id), at.transactional_id ? transactionLink(at.transactional_id) : null, number(at.producer_epoch),
          number(at.last_sequence), number(at.coordinator_epoch),
          at.open_from >= 0 ? h("span", { class: "strong-warn" }, number(at.open_from)) : DASH, ago(at.last_append_ms),
        ]),
        found: data.producers_found, empty: "No producer with an id has written here, or all are forgotten.",
      }),
      table({
        caption: "Aborted transactions", note: "the partition's index, newest first",
        columns: ["#From", "#Marker at", "#Producer", "#Last stable then"],
        rows: data.aborted.map((at) => [number(at.first), number(at.marker), String(at.producer_id), number(at.last_stable)]),
        found: data.aborted_found, empty: "None.",
      }),
      filesPanel(data),
      page.me.can_see_records ? samplePanel(data, page) : panel("Records", "", h("p", { class: "empty" },
        "Records are shown to those who may view the store's connection in Airflow.")),
    ],
  };
}

function stripPanel(data, page) {
  const isEmpty = !data.cells.length;
  return panel("Offsets", isEmpty ? "the log is empty" : `${number(data.strip_first)} to ${number(data.strip_last)}`,
    h("div", { class: "body" },
      !isEmpty && [
        strip(data),
        h("p", { class: "axis", "aria-hidden": "true" }, h("span", null, number(data.strip_first)), h("span", null, number(data.strip_last))),
        isHeld(data) && h("p", { class: "quiet" }, `Readers of committed records stop at offset ${number(data.line.last_stable)}, the upright line: ` +
          "what stands after it is not readable yet, committed or not."),
        h("ul", { class: "legend" }, data.kinds.filter((_, at) => data.cells.some((cell) => cell.counts[at])).map((kind) =>
          h("li", null, h("svg", { "aria-hidden": "true" }, h("rect", { fill: fillOf(kind), width: "100%", height: "100%", rx: 2 })), KINDS[kind]))),
        h("form", { class: "filters", "data-submit": "range", "aria-label": "Which offsets the strip shows" },
          field("From offset", h("input", { id: "r-first", name: "first", type: "number", min: 0, value: page.query.get("first") ?? "" })),
          field("To offset", h("input", { id: "r-last", name: "last", type: "number", min: 0, value: page.query.get("last") ?? "" })),
          h("div", { class: "actions" },
            h("button", { type: "submit", class: "button" }, "Show"),
            h("button", { type: "button", class: "button", "data-action": "whole" }, "Whole log"))),
        h("details", null,
          h("summary", null, "The strip as a table"),
          table({
            caption: "Ranges of offsets", note: "newest first",
            columns: ["#From", "#To", "What", "#Producer"],
            rows: data.ranges.map((range) => [number(range.first), number(range.last),
              badge(LOOKS[range.kind] ?? "", KINDS[range.kind]), range.producer_id >= 0 ? String(range.producer_id) : DASH]),
            found: data.ranges_found, empty: "",
          })),
      ]));
}

/** The texture drawn over each kind's colour, so that hue is not all that tells them apart: dots, slants, a grid, lines. */
const TEXTURES = {
  committed: null,
  open: "M2 2h0 M6 6h0",
  aborted: "M-2 2L2 -2 M-2 10L10 -2 M6 10L10 6",
  compacted: "M0 4H8 M4 0V8",
  marker: null,
  trimmed: "M0 2H8 M0 6H8",
};

const fillOf = (kind) => `url(#texture-${kind})`;

function textures() {
  return h("defs", null, Object.entries(TEXTURES).map(([kind, texture]) =>
    h("pattern", { id: `texture-${kind}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
      h("rect", { class: `kind-${kind}`, width: 8, height: 8 }),
      texture && h("path", { class: `texture-${kind}`, d: texture }))));
}

/** Whether the last stable offset lies within the strip, before the log's end. */
function isHeld({ line, strip_first: first, strip_last: last }) {
  return line.behind > 0 && line.last_stable >= first && line.last_stable <= last;
}

function strip(data) {
  const width = 100 / data.cells.length;
  const totals = data.kinds.map((_, at) => data.cells.reduce((sum, cell) => sum + cell.counts[at], 0));
  const told = data.kinds.map((kind, at) => (totals[at] ? `${number(totals[at])} ${KINDS[kind].toLowerCase()}` : "")).filter(Boolean);
  return h("svg", {
    class: "strip", role: "img",
    "aria-label": `Offsets ${data.strip_first} to ${data.strip_last}: ${told.join(", ")}` +
      (isHeld(data) ? `; readers stop at ${data.line.last_stable}` : ""),
  }, textures(), data.cells.map((cell, column) => {
    const all = cell.counts.reduce((sum, count) => sum + count, 0);
    let top = 0;
    return h("g", null,
      h("title", null, `${number(cell.first)}${cell.last > cell.first ? ` to ${number(cell.last)}` : ""}: ` +
        data.kinds.filter((_, at) => cell.counts[at]).map((kind) => KINDS[kind].toLowerCase()).join(", ")),
      cell.counts.map((count, at) => {
        if (!count) return null;
        const height = (100 * count) / all;
        const rect = h("rect", { fill: fillOf(data.kinds[at]), x: `${(column * width).toFixed(3)}%`, y: `${top.toFixed(2)}%`,
          width: `${width.toFixed(3)}%`, height: `${height.toFixed(2)}%` });
        top += height;
        return rect;
      }));
  }), isHeld(data) && h("rect", { class: "stop", y: 0, width: 3, height: "100%",
    x: `${((100 * (data.line.last_stable - data.strip_first)) / (data.strip_last - data.strip_first + 1)).toFixed(3)}%` }));
}

const FILE_KINDS = { ...KINDS, replaced: "Replaced" };
/** Committed, and behind an open transaction: no reader of committed records gets it yet. */
const isWaiting = (file, data) => ["committed", "compacted"].includes(file.kind) && file.first >= data.line.last_stable;
const FILE_ORDER = Object.keys(FILE_KINDS);

function filesPanel(data) {
  return [
    data.sums.length > 0 && panel("Files", "", h("div", { class: "body" }, facts(
      [...data.sums].sort((a, b) => FILE_ORDER.indexOf(a.kind) - FILE_ORDER.indexOf(b.kind)).map((sum) => [FILE_KINDS[sum.kind], `${plural(sum.files, "file")}, ${bytes(sum.bytes)}`])))),
    table({
      caption: "Data files", note: "newest first",
      columns: ["#From", "#To", "Kind", "#Records", "#Size", "File"],
      rows: data.files.map((file) => [
        number(file.first), number(file.last),
        [badge(LOOKS[file.kind] ?? "", FILE_KINDS[file.kind]),
          file.gone_after_ms >= 0 && h("span", { class: "quiet" }, file.gone_after_ms > now() ? " kept for now" : " may go"),
          isWaiting(file, data) && h("span", { class: "quiet" }, " waits")],
        number(file.records), bytes(file.bytes), h("span", { class: "code name", title: file.path }, file.path),
      ]),
      found: data.files_found, empty: "None.",
    }),
  ];
}

function samplePanel(data, page) {
  const { line } = data;
  return panel("Records", "read from the store when you ask", h("div", { class: "body" },
    h("form", { class: "filters", "data-submit": "sample", "aria-label": "Which records to show" },
      field("From offset", h("input", { id: "s-offset", name: "offset", type: "number", min: 0, required: true, value: line.log_start })),
      field("Offsets", h("input", { id: "s-count", name: "count", type: "number", min: 1, max: 100, required: true, value: 20 })),
      h("div", { class: "check-line" }, h("input", { id: "s-all", name: "uncommitted", type: "checkbox" }),
        h("label", { for: "s-all" }, "open and aborted ones too")),
      h("button", { type: "submit", class: "button" }, "Show records"))),
    page.sample?.trouble && h("p", { class: "empty strong-bad" }, page.sample.trouble),
    page.sample?.records && sampleTable(page.sample));
}

function sampleTable(sample) {
  const front = ["_offset", "_timestamp"];
  const order = [...front.filter((name) => sample.columns.includes(name)), ...sample.columns.filter((name) => !name.startsWith("_"))];
  const places = order.map((name) => sample.columns.indexOf(name));
  return table({
    caption: "Records", note: `${sample.isolation_level}, offsets ${number(sample.first)} to ${number(sample.end - 1)}`,
    columns: order,
    rows: sample.records.map((record) => places.map((place) => (record[place] === null ? h("span", { class: "quiet" }, "null") : String(record[place])))),
    empty: "No record lies at these offsets.",
  });
}
