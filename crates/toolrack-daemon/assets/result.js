// Result of a call: text, images and JSON in tabs.

import { h, setAttr } from "./dom.js";
import { sentence } from "./notifications.js";
import { prettyJson } from "./sanitize.js";

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];
/** Longer text makes browsers slow. */
const MAX_CHARS = 400_000;

const DELIVERY_HINTS = {
  not_sent: "The server did not receive the call. It is safe to run it again.",
  unknown: "The server may have acted on the call.",
  answered: "The server received the call and responded.",
};

/** The result of a call, in tabs. */
export function resultView(response) {
  const content = Array.isArray(response.result?.content) ? response.result.content : [];
  const images = content.filter((block) => block?.type === "image" && IMAGE_TYPES.includes(block.mimeType));
  const tabs = [["Text", () => h("pre", { class: "output", tabindex: "0" }, truncate(response.text) || "(no text)")]];
  if (images.length > 0) {
    tabs.unshift([images.length === 1 ? "Image" : `Images (${images.length})`, () => gallery(images)]);
  }
  if (response.result?.structuredContent !== undefined) {
    tabs.push(["Structured content", () => jsonView(response.result.structuredContent)]);
  }
  tabs.push(["JSON", () => jsonView(response.result)]);
  return tabView(tabs);
}

function tabView(tabs) {
  const body = h("div", { role: "tabpanel", "aria-label": "Result" });
  const controls = tabs.map(([title, make], index) =>
    h("button", { type: "button", role: "tab", onclick: () => show(index, make) }, title),
  );
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Result format" }, ...controls);
  const show = (selected, make) => {
    controls.forEach((control, index) => {
      setAttr(control, "aria-selected", String(index === selected));
      setAttr(control, "tabindex", index === selected ? "0" : "-1");
    });
    body.replaceChildren(make());
  };
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step !== undefined) {
      const next = (controls.indexOf(event.target) + step + controls.length) % controls.length;
      controls[next].click();
      controls[next].focus();
    }
  });
  show(0, tabs[0][1]);
  return h("div", { class: "result-body" }, bar, body);
}

function gallery(images) {
  const elements = images.map(({ mimeType, data }, index) =>
    h("img", { src: `data:${mimeType};base64,${data}`, alt: `Image ${index + 1} of the result` }),
  );
  return h("div", { class: "gallery" }, ...elements);
}

function jsonView(value) {
  return h("pre", { class: "output", tabindex: "0" }, truncate(prettyJson(value)));
}

/** Truncates long text. */
export function truncate(text) {
  return text.length <= MAX_CHARS ? text : `${text.slice(0, MAX_CHARS)}\n… ${text.length - MAX_CHARS} more characters`;
}

/** The error of a failed call. */
export function problemView(problem) {
  const lines = problem.errors.map(({ field, message }) => {
    const location = field ? h("code", {}, `${field} `) : null;
    return h("p", {}, location, sentence(message));
  });
  const hints = [problem.hint ? sentence(problem.hint) : null, DELIVERY_HINTS[problem.delivery]].filter(Boolean);
  return h("div", { class: "problem" }, ...lines, ...hints.map((hint) => h("p", { class: "hint" }, hint)));
}
