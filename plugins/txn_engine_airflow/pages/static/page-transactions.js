// Transactions: every transactional id, filtered.

import { abortActions, abortButton } from "./abort.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { ago, number, plural, since } from "./format.js";
import { hangingTable, timeout } from "./page-overview.js";
import { damageTable, field, stateBadge, table, transactionLink } from "./pieces.js";

const COUNT = 50;
const AGES = [["0", "any age"], ["10", "over 10 s"], ["60", "over 1 min"], ["600", "over 10 min"], ["3600", "over 1 h"]];
const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"];

export async function load(query, signal) {
  return get("transactions", {
    state: query.getAll("state"),
    older_than_s: query.get("older_than_s"),
    pattern: query.get("pattern"),
    topic: query.get("topic"),
    first: query.get("first"),
    count: COUNT,
  }, signal);
}

export function controls({ query }) {
  const choice = (id, name, options) =>
    h("select", { id, name }, options.map(([value, text]) => h("option", { value, selected: query.get(name) === value }, text)));
  const topic = h("input", { id: "f-topic", name: "topic", type: "text", value: query.get("topic") ?? "", autocomplete: "off" });
  const pattern = h("input", {
    id: "f-pattern", name: "pattern", type: "search", value: query.get("pattern") ?? "", placeholder: "part of it, * for anything",
  });
  return [
    h("form", { class: "filters", role: "search", "aria-label": "Filter transactions", "data-submit": "filter" },
      field("Transactional id", pattern),
      field("State", choice("f-state", "state", [["", "any state"], ...STATES.map((state) => [state, state])])),
      field("Open for", choice("f-age", "older_than_s", AGES)),
      field("Topic", topic),
      h("div", { class: "actions" },
        h("button", { type: "submit", class: "button" }, "Filter"),
        h("button", { type: "button", class: "button", "data-action": "clear" }, "Clear"))),
  ];
}

export function actions(page) {
  return {
    filter: (form) => {
      const query = new URLSearchParams();
      for (const [name, value] of new FormData(form)) if (value && value !== "0") query.append(name, value.trim());
      page.setQuery(query);
    },
    clear: (button) => {
      for (const control of button.form.elements) if (control.name) control.value = control.name === "older_than_s" ? "0" : "";
      page.setQuery(new URLSearchParams());
    },
    turn: (button) => {
      const query = new URLSearchParams(page.query);
      query.set("first", button.dataset.first);
      page.setQuery(query);
    },
    ...abortActions((text) => {
      page.say(text);
      page.refresh();
    }),
  };
}

export function render(list, page) {
  const first = Number(page.query.get("first") ?? 0);
  const canAct = page.me.can_abort && list.lines.some((line) => line.state === "Ongoing");
  return {
    lede: list.found === list.total ? plural(list.total, "transactional id") : `${number(list.found)} of ${plural(list.total, "transactional id")}`,
    summary: `${plural(list.found, "transactional id")} found`,
    content: [
      damageTable(list.damage),
      list.hanging.length > 0 && hangingTable(list.hanging, list.now_ms, page.me),
      table({
        caption: "Transactional ids",
        note: "undecided and open ones first, the longest open on top",
        columns: ["Transactional id", "State", "#Open for", "#Timeout", "#Partitions", "Topics", "#Producer", "#Epoch", "Updated",
          ...(canAct ? ["Action"] : [])],
        rows: list.lines.map((line) => [
          transactionLink(line.transactional_id),
          stateBadge(line.state, line.is_overdue),
          line.began_ms >= 0 ? since(line.began_ms) : null,
          timeout(line.timeout_ms),
          line.partitions ? number(line.partitions) : null,
          line.topics.length ? line.topics.join(", ") : null,
          line.producer_id,
          line.producer_epoch,
          ago(line.updated_ms),
          ...(canAct ? [line.state === "Ongoing" ? abortButton(line) : ""] : []),
        ]),
        empty: list.total ? "No transactional id fits the filter." : "No transactional id was ever used.",
      }),
      list.found > COUNT && pages(list, first),
    ],
  };
}

function pages(list, first) {
  const turn = (text, to, isPossible) =>
    h("button", { type: "button", class: "button small", "data-action": "turn", "data-first": to, disabled: !isPossible }, text);
  return h("nav", { class: "actions", "aria-label": "Pages of the list" },
    turn("Previous", Math.max(first - COUNT, 0), first > 0),
    turn("Next", first + COUNT, first + COUNT < list.found),
    h("span", { class: "quiet" }, `${number(first + 1)} to ${number(Math.min(first + COUNT, list.found))} of ${number(list.found)}`));
}
