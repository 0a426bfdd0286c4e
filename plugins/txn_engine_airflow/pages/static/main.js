// Runs the page that the HTML names: asks, shows, and asks again every few seconds while somebody looks.

import "./airflow.js";
import { get } from "./api.js";
import { h, markScrollable, show } from "./dom.js";
import { duration, hearClock, moment } from "./format.js";
import { notice } from "./pieces.js";

const EVERY_MS = 3000;
const OLD_AFTER_MS = 20_000;
const TABS = { transaction: "transactions", topic: "topics", partition: "topics", group: "groups", "dead-letter-topic": "dead-letters", cut: "cuts", report: "quality" };

const name = document.body.dataset.page;
const at = (id) => document.getElementById(id);
document.querySelector(`[data-tab="${TABS[name] ?? name}"]`)?.setAttribute("aria-current", "page");
const module = await import(`./page-${name}.js`);
const page = { me: null, data: null, query: new URLSearchParams(location.search), said: "" };
let isPaused = false;
let asking = null;
let health = null; // what the server last said of its own looking, and when that was heard
let failure = null; // why the last refresh failed

/** Ask anew now: after a filter changed, or something was done. */
async function refresh() {
  asking?.abort();
  asking = new AbortController();
  try {
    const [data, said] = await Promise.all([module.load(page.query, asking.signal), get("health", {}, asking.signal)]);
    hearClock(said.now_ms);
    page.data = data;
    health = { ...said, heardMs: performance.now() };
    failure = null;
    showPage();
    showState();
  } catch (error) {
    if (error.name === "AbortError") return;
    failure = error;
    page.redraw(); // older by now than it says
    showState();
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

/** How old what is shown is, by clocks that nobody sets; -1: nothing was seen yet. */
function ageMs() {
  return health === null || health.age_ms < 0 ? -1 : health.age_ms + performance.now() - health.heardMs;
}

/** Whether what is shown is of now; where it is not, how old it is and why. */
function showState() {
  const age = ageMs();
  const isOld = age > OLD_AFTER_MS || health?.trouble || (failure && !failure.isWait);
  at("freshness").dataset.state = age < 0 ? (failure && !failure.isWait ? "old" : "wait") : isOld ? "old" : "fresh";
  at("freshness").textContent = age < 0 ? (failure && !failure.isWait ? "Nothing seen" : "Opening the store") :
    isOld ? `${isPaused ? "Paused, " : ""}${duration(Math.max(age, 1000))} old` : isPaused ? "Paused" : "Up to date";
  show(at("trouble"), notices(age));
  if (failure && (page.data === null || failure.status === 404)) {
    show(at("content"), []);
    at("content").setAttribute("aria-busy", String(failure.isWait));
  }
}

function notices(age) {
  const asOf = age >= 0 && page.data !== null && failure?.status !== 404 &&
    h("p", null, "What is shown is as of ", moment(health.seen_ms), ", and may be different by now."); // told aloud: it must not tick
  if (failure) {
    return [notice(failure.isWait ? "" : "bad", titleOf(failure), h("p", null, failure.message),
      failure.status === 401 && h("p", null, "Log in to Airflow again, then reload this page."), asOf)];
  }
  return [
    health?.trouble && notice("bad", "The store could not be looked at", h("p", null, health.trouble), asOf),
    health?.airflow_trouble && notice("bad", "Airflow's database could not be looked at",
      h("p", null, health.airflow_trouble), h("p", null, "Runs and reports may be different by now.")),
    health?.clock_trouble && notice("warn", "A clock is wrong", h("p", null, health.clock_trouble)),
  ];
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
    else if (!document.hidden && page.data !== null) {
      showPage();
      showState();
    }
    again();
  }, waitMs);
}

const actions = {
  skip: () => at("main").focus(),
  pause: (button) => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    button.textContent = isPaused ? "Resume" : "Pause";
    if (isPaused) showState();
    else refresh();
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
  failure = error;
  showState();
}
again();
