// Dead letters: the topics that take some, and what could not be used why.

import { get } from "./api.js";
import { h } from "./dom.js";
import { DASH, ago, number, plural } from "./format.js";
import { warned } from "./page-overview.js";
import { badge, damageTable, link, notice, table, withCode } from "./pieces.js";

export const load = (_, signal) => get("dead-letters", {}, signal);
export const everyMs = (data) => (data.is_read ? 3000 : 600);

export function render(data) {
  return {
    lede: `${plural(data.waiting, "letter")} ${data.waiting === 1 ? "waits" : "wait"} in ${plural(data.topics_found, "topic")}`,
    summary: `${plural(data.waiting, "dead letter")} waiting`,
    content: [
      damageTable(data.damage),
      table({
        caption: "Dead-letter topics",
        note: "rows that could not be used, each committed with those that could; replayed: loaded since, or come back as a new letter",
        columns: ["Topic", "#Waiting", "#Replayed", "#Letters", "Since", "Newest"],
        rows: data.topics.map((topic) => [
          topicName(topic), warned(topic.waiting), number(topic.replayed), number(topic.letters), ...whenOf(topic, data),
        ]),
        found: data.topics_found,
        empty: withCode("No topic takes dead letters. `txn-engine topics create NAME --dead-letters` makes one."),
      }),
      data.topics.length > 0 && reasonsTable(data, data.topics, { ofTopic: true }),
      data.uncounted > 0 && notice("", "", h("p", null, withCode(
        `The reasons of ${plural(data.uncounted, "topic")} are not counted here: \`txn-engine dead-letters list\` counts all.`))),
    ],
  };
}

function topicName(topic) {
  const name = link("dead-letter-topic", { topic: topic.topic }, topic.topic);
  return topic.damaged ? h("div", { class: "badges" }, name, badge("bad", "Damaged", `${plural(topic.damaged, "partition")} cannot be read`)) : name;
}

/** Since when letters have failed, and when the last one did, of those that were counted. */
function whenOf(topic, { is_read: isRead }) {
  if (!topic.letters) return ["never", "never"];
  if (!topic.counted) return isRead ? [DASH, DASH] : ["…", "…"];
  const since = ago(topic.first_failed_ms);
  return [topic.counted < topic.letters ? [since, h("div", { class: "small quiet" }, "or earlier")] : since, ago(topic.last_failed_ms)];
}

/** By topic and reason, the newest first; `canShow`: with a button that shows the newest letter of each. */
export function reasonsTable(data, topics, { ofTopic = false, canShow = false }) {
  const sum = (name) => topics.reduce((all, topic) => all + topic[name], 0);
  const [counted, letters] = [sum("counted"), sum("letters")];
  const note = !data.is_read ? "being counted" : counted < letters ? `of the newest ${number(counted)} letters, of ${number(letters)}` : "of all letters";
  return table({
    caption: "Reasons", note: `${note}; the newest first`,
    columns: ["Reason", "For topic", "#Waiting", "#Letters", "#Came back", "Since", "Newest", ...(ofTopic ? ["Dead-letter topic"] : []), ...(canShow ? ["Action"] : [])],
    rows: data.reasons.map((at) => [
      h("div", { class: "wrap" }, at.reason, h("div", { class: "small quiet" }, at.error_class)),
      [topicOf(at.topic, at.is_topic), at.source_topic && h("div", { class: "small quiet" }, "read from ", topicOf(at.source_topic, at.is_source))],
      warned(at.waiting), number(at.total), number(at.came_back), ago(at.first_failed_ms),
      [ago(at.last_failed_ms), h("div", { class: "small quiet" }, "in ",
        link("partition", { topic: at.dead_letter_topic, partition: at.partition, first: at.offset }, `partition ${at.partition} at ${number(at.offset)}`))],
      ...(ofTopic ? [link("dead-letter-topic", { topic: at.dead_letter_topic }, at.dead_letter_topic)] : []),
      ...(canShow ? [showButton(at)] : []),
    ]),
    found: data.reasons_found,
    empty: data.is_read ? (letters ? "None of these letters could be read." : "There is no letter.") : "Being counted…",
  });
}

function showButton(at) {
  return h("button", { type: "button", class: "button small", "data-action": "letters-at", "data-partition": at.partition, "data-offset": at.offset,
    "aria-label": `Show the letters up to offset ${at.offset} of partition ${at.partition}` }, "Show");
}

/** A topic's name as a letter says it: a link where there is one. */
export function topicOf(name, isThere) {
  return isThere ? link("topic", { topic: name }, name) : h("span", { title: "no such topic" }, name);
}
