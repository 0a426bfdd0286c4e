// The pieces that pages are put together from.

import { h } from "./dom.js";
import { DASH, number } from "./format.js";

/** A path below this app, with its query. */
export function to(path, query = {}) {
  const text = new URLSearchParams(query).toString();
  return text ? `${path}?${text}` : path;
}

export function link(path, query, text) {
  return h("a", { href: to(path, query) }, text);
}

export function transactionLink(id) {
  return h("a", { href: to("transaction", { id }), class: "name", title: id }, id);
}

export function partitionLink(topic, partition) {
  return link("partition", { topic, partition }, `${topic}-${partition}`);
}

/** A link to a page of Airflow's own; `airflow.js` opens it outside of the frame. */
export function airflowLink(path, text) {
  return h("a", { href: `..${path}`, "data-airflow": path }, text);
}

const STATES = {
  Ongoing: ["info", "Ongoing"],
  PrepareCommit: ["warn", "Committing"],
  PrepareAbort: ["warn", "Aborting"],
  CompleteCommit: ["good", "Committed"],
  CompleteAbort: ["", "Aborted"],
  Empty: ["", "Empty"],
};

/** A transaction's state in a word; Kafka's own name stands in the title. */
export function stateBadge(state, isOverdue = false) {
  const [look, text] = STATES[state] ?? ["", state];
  if (isOverdue) return badge("bad", "Overdue", `${state}, for longer than its timeout`);
  return badge(look, text, state);
}

/** What the badge does not say: the protocol's own name of the state, where the word is another one. */
export function otherName({ state, is_overdue: isOverdue }) {
  return isOverdue || STATES[state]?.[1] !== state ? state : "";
}

export function badge(look, text, title) {
  return h("span", { class: `badge ${look}`.trim(), title }, text);
}

const RUN_STATES = { success: ["good", "Success"], failed: ["bad", "Failed"], running: ["info", "Running"] };

export function runBadge(state) {
  const [look, text] = RUN_STATES[state] ?? ["", state.charAt(0).toUpperCase() + state.slice(1)];
  return badge(look, text);
}

export function panel(title, note, ...content) {
  return h("section", { class: "panel", "aria-label": title, "data-key": title }, h("header", null, h("h2", null, title), note && h("p", null, note)), content);
}

/** Figures on top of a page: `[label, value, note, look]`. */
export function tiles(items) {
  return h(
    "dl",
    { class: "tiles" },
    items.map(([label, value, note, look]) =>
      h(
        "div",
        { class: `tile ${look ?? ""}`.trim() },
        h("dt", null, label),
        h("dd", null, value),
        note && h("dd", { class: "note" }, h("small", null, note)),
      ),
    ),
  );
}

/** `[name, value]` pairs; those without a value are left out. */
export function facts(items) {
  return h(
    "dl",
    { class: "facts" },
    items
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

/**
 * A table with a caption. `columns`: names, those of numbers with "#" in front; the one called "Action" stays in view
 * while the rest scrolls. `rows`: cells, the first one the row's
 * header. `found`: how many there are where the rows were cut. From one refresh to the next a row is known by where its
 * header leads, or else by what it says.
 */
export function table({ caption, note, columns, rows, empty, found }) {
  if (!rows.length) return panel(caption, note, h("p", { class: "empty" }, empty));
  const looks = columns.map((name) => (name.startsWith("#") ? "number" : name === "Action" ? "action" : null));
  const cell = (value, at) => {
    const attributes = { class: looks[at] };
    return at === 0 ? h("th", { scope: "row", ...attributes }, value) : h("td", attributes, value ?? DASH);
  };
  const line = (row) => {
    const [header, ...others] = row.map(cell);
    const key = header.querySelector("a")?.getAttribute("href") ?? header.textContent;
    return h("tr", { "data-key": key }, header, others);
  };
  return h(
    "section",
    { class: "panel", "aria-label": caption, "data-key": caption },
    h(
      "div",
      { class: "scroll", role: "region", "aria-label": `${caption}, table` },
      h(
        "table",
        null,
        h("caption", null, h("div", null, h("strong", null, caption), note && h("span", null, note))),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            columns.map((name, at) =>
              h("th", { scope: "col", class: looks[at] }, name.replace("#", "")),
            ),
          ),
        ),
        h("tbody", null, rows.map(line)),
      ),
    ),
    found > rows.length && h("p", { class: "more" }, `The first ${number(rows.length)} of ${number(found)} are shown.`),
  );
}

/** Counts by name as bars; the numbers stand beside them. */
export function bars(items) {
  const most = Math.max(1, ...items.map(([, count]) => count));
  return h(
    "ul",
    { class: "bars" },
    items.map(([label, count]) =>
      h(
        "li",
        { "data-key": label },
        h("span", null, label),
        h(
          "svg",
          { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
          h("rect", { width: (100 * count) / most, height: 10 }),
        ),
        h("span", { class: "number" }, number(count)),
      ),
    ),
  );
}

/** What cannot be read, a red row each, with the object and what to do; nothing where all can be. */
export function damageTable(damage, found = damage.length) {
  if (!damage.length) return null;
  return table({
    caption: "Damaged",
    note: "A place that cannot be read is in none of the numbers. All other numbers are up to date.",
    columns: ["Place", "State", "Error"],
    rows: damage.map((at) => [
      at.partition < 0 ? at.topic : `${at.topic}-${at.partition}`, badge("bad", "Damaged", at.code),
      h("div", { class: "wrap" }, at.error),
    ]),
    found,
    empty: "",
  });
}

export function notice(look, title, ...content) {
  return h("div", { class: `notice ${look}` }, title && h("h2", null, title), content);
}

/** Entries of a log that cannot be read, and are missing from its history. */
export function damagedHistory(damaged) {
  return damaged.length > 0 && notice("bad", "Not all of the history can be read",
    h("p", null, withCode("What these entries held is missing below; all else is as it was. `txn-engine verify` says what is damaged.")),
    h("ul", null, damaged.map((line) => h("li", { class: "wrap" }, line))));
}

/** A text with its `commands` set as such. */
export function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));
}

export function field(label, control) {
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control);
}
