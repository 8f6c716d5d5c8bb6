// DOM helpers.
//
// Invariant: external data enters the page as sanitized text only. No module parses HTML.

import { sanitize } from "./sanitize.js";

const SVG = "http://www.w3.org/2000/svg";
/** Attributes that are shown or read aloud, and are therefore sanitized. */
const TEXT_ATTRIBUTES = ["alt", "aria-label", "placeholder", "title"];

/** Creates an element: `h("button", { class: "quiet", onclick: act }, "Restart")`. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      setAttr(element, name, value);
    }
  }
  const present = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...present.map((child) => (typeof child === "string" ? sanitize(child) : child)));
  return element;
}

/** Sets an attribute; `false`, `null` and `undefined` remove it. An unchanged value is not written. */
export function setAttr(element, name, value) {
  if (value === false || value === null || value === undefined) {
    element.removeAttribute(name);
    return;
  }
  const raw = value === true ? "" : String(value);
  const text = TEXT_ATTRIBUTES.includes(name) ? sanitize(raw) : raw;
  if (element.getAttribute(name) !== text) {
    element.setAttribute(name, text);
  }
}

/** Sets the text of an element. An unchanged text is not written, so that a selection survives. */
export function setText(element, text) {
  const sanitized = sanitize(text);
  if (element.textContent !== sanitized) {
    element.textContent = sanitized;
  }
}

/**
 * Reconciles the children of `parent` with `items` by key. Existing children are reused, so that focus, selection and
 * scroll position survive.
 */
export function syncChildren(parent, items, key, make, update) {
  const existing = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = existing.get(name);
    existing.delete(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    update?.(child, item);
    if (child === next) {
      next = next.nextElementSibling;
    } else {
      parent.insertBefore(child, next);
    }
  }
  for (const removed of existing.values()) {
    removed.remove();
  }
}

/** Finds a descendant by its `data-part` name. */
export function part(element, name) {
  return element.querySelector(`[data-part="${name}"]`);
}

/** A control with a label above it. */
export function labelledControl(text, control, hint) {
  const label = h("label", { class: "field" }, h("span", { class: "field-name" }, text), control);
  if (hint) {
    label.append(h("span", { class: "hint" }, hint));
  }
  return label;
}

/** Search box of a view. The `/` shortcut finds it by `data-search`. */
export function searchBox(label, placeholder, oninput) {
  return h("input", {
    type: "search",
    placeholder,
    "aria-label": label,
    "data-search": true,
    spellcheck: "false",
    autocomplete: "off",
    oninput,
  });
}

/** Empty state of a view. */
export function emptyState(title, ...advice) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...advice);
}

/** A button that ignores clicks while its action is running. */
export function button(text, className, action, attributes) {
  const element = h("button", { type: "button", class: className, ...attributes }, text);
  element.addEventListener("click", async () => {
    if (element.getAttribute("aria-busy") === "true") {
      return;
    }
    element.setAttribute("aria-busy", "true");
    try {
      await action(element);
    } finally {
      element.removeAttribute("aria-busy");
    }
  });
  return element;
}
