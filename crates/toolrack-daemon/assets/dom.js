// Elements out of plain values.
//
// Invariant: whatever comes from outside goes into the page as text, without what is hidden in it. Nothing here, and
// nobody else, reads HTML.

import { clean } from "./sanitize.js";

const SVG = "http://www.w3.org/2000/svg";
/** Attributes that people read or hear. */
const READ = ["alt", "aria-label", "placeholder", "title"];

/** An element: `h("button", { class: "quiet", onclick: act }, "Restart")`. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for pictures. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      set(element, name, value);
    }
  }
  const shown = children.flat().filter((it) => it !== null && it !== undefined && it !== false);
  element.append(...shown.map((it) => (typeof it === "string" ? clean(it) : it)));
  return element;
}

/** Sets an attribute; `false`, `null` and `undefined` take it away. Nothing is written that is there already. */
export function set(element, name, value) {
  if (value === false || value === null || value === undefined) {
    element.removeAttribute(name);
    return;
  }
  const plain = value === true ? "" : String(value);
  const text = READ.includes(name) ? clean(plain) : plain;
  if (element.getAttribute(name) !== text) {
    element.setAttribute(name, text);
  }
}

/** Sets the text of an element, unless it is there already: a selection in it survives. */
export function say(element, text) {
  const shown = clean(text);
  if (element.textContent !== shown) {
    element.textContent = shown;
  }
}

/**
 * Makes the children of `parent` stand for `items`, in order. Those that were there before stay the same elements, so
 * that focus, selection and scroll position survive.
 */
export function sync(parent, items, key, make, update) {
  const known = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    update?.(child, item);
    if (child === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(child, place);
    }
  }
  for (const gone of known.values()) {
    gone.remove();
  }
}

/** Part of an element that its maker gave a name with `data-part`. */
export function part(element, name) {
  return element.querySelector(`[data-part="${name}"]`);
}

/** A control with its label above it. */
export function labelled(text, control, hint) {
  const label = h("label", { class: "field" }, h("span", { class: "field-name" }, text), control);
  if (hint) {
    label.append(h("span", { class: "hint" }, hint));
  }
  return label;
}

/** The box in which a view is searched. The key that jumps to it finds it by its name. */
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

/** What a view shows when there is nothing to show. */
export function empty(title, ...advice) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...advice);
}

/** A button. While what it started is under way it cannot be pressed again. */
export function button(text, kind, act, attributes) {
  const element = h("button", { type: "button", class: kind, ...attributes }, text);
  element.addEventListener("click", async () => {
    if (element.getAttribute("aria-busy") === "true") {
      return;
    }
    element.setAttribute("aria-busy", "true");
    try {
      await act(element);
    } finally {
      element.removeAttribute("aria-busy");
    }
  });
  return element;
}
