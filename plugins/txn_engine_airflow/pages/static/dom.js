// Elements from data. Text is always text: nothing here parses HTML, so no name or record can become markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "line", "title", "path", "g", "defs", "pattern"]);

/** An element with attributes and children; null, undefined and false are left out, `true` is an empty attribute. */
export function h(tag, attributes, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && typeof child !== "boolean") element.append(String(child));
  }
}

/**
 * Make `region` show these nodes, changing only what differs: focus, scroll positions, open details and what somebody is
 * typing stay as they are. Elements with a `data-key` are matched by it, so focus stays on the very row that it was on;
 * where that is gone, its section gets the focus. Listeners therefore sit on the document and go by `data-action`.
 */
export function show(region, nodes) {
  const wanted = document.createElement(region.tagName);
  append(wanted, [nodes]);
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  const sections = focused ? sectionsAround(focused) : [];
  morphChildren(region, wanted);
  if (focused && !focused.isConnected) {
    focusOn(sections.find((section) => section.isConnected) ?? document.getElementById("main"));
  }
}

function sectionsAround(element) {
  const section = element.parentElement?.closest("section[data-key]");
  return section ? [section, ...sectionsAround(section)] : [];
}

function focusOn(element) {
  element.setAttribute("tabindex", "-1");
  element.focus({ preventScroll: true });
}

const LEFT_ALONE = new Set(["open", "tabindex"]); // the reader's doing, or what this module sets

/** What was there goes, stays or moves. What holds the focus never moves, for it would lose it: others move around it. */
function morphChildren(old, wanted) {
  const pairs = matched([...old.childNodes], [...wanted.childNodes]);
  const staying = new Set(pairs.map(([before]) => before));
  for (const child of [...old.childNodes]) if (!staying.has(child)) child.remove();
  let next = old.firstChild;
  for (const [before, node] of pairs) {
    const shown = before ?? node;
    if (shown.contains(document.activeElement)) while (next !== shown) next = without(next);
    if (shown === next) next = next.nextSibling;
    else old.insertBefore(shown, next);
    if (before) morph(before, node);
  }
}

/** `[before, node]` for every wanted node: the first with one name and key is the first that had them, and so on. */
function matched(olds, wanted) {
  const left = Map.groupBy(olds, identity);
  return wanted.map((node) => [left.get(identity(node))?.shift(), node]);
}

function identity(node) {
  const key = node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
  return key === null ? node.nodeName : `${node.nodeName} ${key}`;
}

/** Take the node out, to be put back further on; returns the one after it. */
function without(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function morph(before, node) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (before.nodeValue !== node.nodeValue) before.nodeValue = node.nodeValue;
    return;
  }
  for (const { name } of [...before.attributes]) {
    if (!node.hasAttribute(name) && !LEFT_ALONE.has(name)) before.removeAttribute(name);
  }
  for (const { name, value } of [...node.attributes]) {
    if (before.getAttribute(name) !== value && !LEFT_ALONE.has(name)) before.setAttribute(name, value);
  }
  morphChildren(before, node);
}

/** A region that scrolls must be reachable by keyboard; one that does not, need not. */
export function markScrollable(root) {
  for (const region of root.querySelectorAll(".scroll")) {
    if (region.scrollWidth > region.clientWidth) region.setAttribute("tabindex", "0");
    else if (region !== document.activeElement) region.removeAttribute("tabindex");
  }
}
