// What a tool answered: as text, as JSON, and its pictures.

import { h, set } from "./dom.js";
import { sentence } from "./notifications.js";
import { pretty } from "./sanitize.js";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];
/** More text than this makes a browser slow. */
const MAX_SHOWN = 400_000;

const FAR = {
  not_sent: "The server did not get it; it is safe to run it again.",
  unknown: "Whether the server acted on it is not known.",
  answered: "The server got it and answered.",
};

/** The answer to a call, with a tab for each way to look at it. */
export function resultOf(answer) {
  const content = Array.isArray(answer.result?.content) ? answer.result.content : [];
  const pictures = content.filter((it) => it?.type === "image" && PICTURES.includes(it.mimeType));
  const tabs = [["Text", () => h("pre", { class: "output", tabindex: "0" }, cut(answer.text) || "(no text)")]];
  if (pictures.length > 0) {
    tabs.unshift([pictures.length === 1 ? "Image" : `Images (${pictures.length})`, () => gallery(pictures)]);
  }
  if (answer.result?.structuredContent !== undefined) {
    tabs.push(["Structured", () => json(answer.result.structuredContent)]);
  }
  tabs.push(["JSON", () => json(answer.result)]);
  return tabbed(tabs);
}

function tabbed(tabs) {
  const body = h("div", { role: "tabpanel", "aria-label": "Result" });
  const controls = tabs.map(([title, make], place) =>
    h("button", { type: "button", role: "tab", onclick: () => show(place, make) }, title),
  );
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Result as" }, ...controls);
  const show = (place, make) => {
    controls.forEach((it, other) => {
      set(it, "aria-selected", String(other === place));
      set(it, "tabindex", other === place ? "0" : "-1");
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

function gallery(pictures) {
  const shown = pictures.map((it, place) =>
    h("img", { src: `data:${it.mimeType};base64,${it.data}`, alt: `Picture ${place + 1} of the result` }),
  );
  return h("div", { class: "gallery" }, ...shown);
}

function json(value) {
  return h("pre", { class: "output", tabindex: "0" }, cut(pretty(value)));
}

/** As much of a text as a browser shows quickly. */
export function cut(text) {
  return text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}\n… ${text.length - MAX_SHOWN} more characters`;
}

/** Why there is no answer. */
export function failureOf(problem) {
  const lines = problem.errors.map((it) => {
    const place = it.field ? h("code", {}, `${it.field} `) : null;
    return h("p", {}, place, sentence(it.message));
  });
  const advice = [problem.hint ? sentence(problem.hint) : null, FAR[problem.delivery]].filter(Boolean);
  return h("div", { class: "problem" }, ...lines, ...advice.map((it) => h("p", { class: "hint" }, it)));
}
