// Runs the page that the HTML names: asks, shows, and asks again every few seconds while somebody looks.

import "./airflow.js";
import { get } from "./api.js";
import { h, markScrollable, show } from "./dom.js";
import { duration } from "./format.js";
import { notice } from "./pieces.js";

const EVERY_MS = 3000;
const OLD_AFTER_MS = 20_000;
const TABS = { transaction: "transactions", topic: "topics", partition: "topics", group: "groups", report: "quality" };

const name = document.body.dataset.page;
const at = (id) => document.getElementById(id);
document.querySelector(`[data-tab="${TABS[name] ?? name}"]`)?.setAttribute("aria-current", "page");
const module = await import(`./page-${name}.js`);
const page = { me: null, data: null, query: new URLSearchParams(location.search), said: "" };
let isPaused = false;
let asking = null;

/** Ask anew now: after a filter changed, or something was done. */
async function refresh() {
  asking?.abort();
  asking = new AbortController();
  try {
    page.data = await module.load(page.query, asking.signal);
    showPage();
    showHealth(await get("health", {}, asking.signal));
  } catch (error) {
    if (error.name !== "AbortError") showTrouble(error);
  }
}

function showPage() {
  const made = module.render(page.data, page);
  if (made.title) {
    at("title").textContent = made.title;
    document.title = `${made.title} · Transaction engine`;
  }
  show(at("lede"), [made.lede ?? ""]);
  show(at("content"), made.content);
  at("content").setAttribute("aria-busy", "false");
  markScrollable(at("content"));
  if (made.summary && made.summary !== page.said) {
    if (page.said) say(made.summary);
    page.said = made.summary;
  }
}

function showHealth(health) {
  const age = health.now_ms - health.seen_ms;
  const isOld = health.trouble !== "" || age > OLD_AFTER_MS;
  const isSeen = health.seen_ms >= 0;
  at("freshness").dataset.state = !isSeen ? "wait" : isOld ? "old" : "fresh";
  at("freshness").textContent = !isSeen ? "Opening the store" : isOld ? `${duration(age)} old` : "Up to date";
  show(at("trouble"), health.trouble ? [notice("bad", "The store could not be looked at", h("p", null, health.trouble))] : []);
}

function showTrouble(error) {
  at("freshness").dataset.state = error.isWait ? "wait" : "old";
  at("freshness").textContent = error.isWait ? "Opening the store" : "Not refreshed";
  show(at("trouble"), [notice(error.isWait ? "" : "bad", titleOf(error), h("p", null, error.message),
    error.status === 401 && h("p", null, "Log in to Airflow again, then reload this page."))]);
  if (page.data === null || error.status === 404) {
    show(at("content"), []);
    at("content").setAttribute("aria-busy", String(error.isWait));
  }
}

function titleOf(error) {
  if (error.isWait) return "Nothing to show yet";
  return { 401: "Your session has ended", 404: "Nothing here" }[error.status] ?? "This could not be refreshed";
}

/** Tell those who cannot see it. */
function say(text) {
  at("live").textContent = text;
}

function again() {
  const waitMs = page.data === null ? 1000 : (module.everyMs?.(page.data) ?? EVERY_MS);
  setTimeout(async () => {
    if (!isPaused && !document.hidden) await refresh();
    again();
  }, waitMs);
}

const actions = {
  skip: () => at("main").focus(),
  pause: (button) => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? "Resume" : "Pause";
    if (!isPaused) refresh();
  },
};

document.addEventListener("click", (event) => {
  const element = event.target.closest?.("[data-action]");
  const act = element && (module.actions?.(page)[element.dataset.action] ?? actions[element.dataset.action]);
  if (!act) return;
  event.preventDefault();
  act(element);
});
document.addEventListener("submit", (event) => {
  const act = module.actions?.(page)[event.target.dataset.submit];
  if (!act) return;
  event.preventDefault();
  act(event.target);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !isPaused) refresh();
});
for (const happened of ["resize", "toggle"]) {
  window.addEventListener(happened, () => markScrollable(at("content")), true);
}

/** Put the page's filter into its address, and ask. */
page.setQuery = (query) => {
  page.query = query;
  const text = query.toString();
  history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}`);
  return refresh();
};
page.refresh = refresh;
page.redraw = () => page.data !== null && showPage();
page.say = say;

try {
  page.me = await get("me");
  if (module.controls) show(at("controls"), module.controls(page));
  await refresh();
} catch (error) {
  showTrouble(error);
}
again();
