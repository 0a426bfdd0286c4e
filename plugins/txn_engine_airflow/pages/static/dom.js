// Elements from data. Text is always text: nothing here parses HTML, so no name or record can become markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "line", "title", "path", "text", "g"]);

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
 * typing stay as they are. Listeners therefore sit on the document and go by `data-action`.
 */
export function show(region, nodes) {
  const wanted = document.createElement(region.tagName);
  append(wanted, [nodes]);
  morphChildren(region, wanted);
}

const LEFT_ALONE = new Set(["open", "tabindex"]); // the reader's doing, or `markScrollable`'s

function morphChildren(old, wanted) {
  const after = [...wanted.childNodes];
  after.forEach((node, at) => {
    const before = old.childNodes[at];
    if (!before) old.append(node);
    else if (isAlike(before, node)) morph(before, node);
    else before.replaceWith(node);
  });
  while (old.childNodes.length > after.length) old.lastChild.remove();
}

function isAlike(before, node) {
  if (before.nodeType !== node.nodeType || before.nodeName !== node.nodeName) return false;
  return node.nodeType !== Node.ELEMENT_NODE || before.getAttribute("data-key") === node.getAttribute("data-key");
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
