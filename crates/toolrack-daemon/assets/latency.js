// How long calls take, by server and by tool.

import { h, say, set, sync } from "./dom.js";
import { duration } from "./format.js";
import { callFits } from "./search.js";
import { known } from "./store.js";

const TITLES = ["Server, tool", "Calls", "Failed", "p50", "p90", "p99", "Longest"];

/** `{ element, update }`: `update` gets the words of a filter. */
export function latencies() {
  const titles = TITLES.map((it, place) => h("th", { scope: "col", class: place > 0 ? "number" : null }, it));
  const rows = h("tbody");
  const table = h("table", { class: "latency" }, h("thead", {}, h("tr", {}, ...titles)), rows);
  const element = h(
    "div",
    { class: "pane", hidden: true },
    h("h2", {}, "Latency"),
    h("p", { class: "hint" }, "Of the latest calls of each server and tool."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latency by server and tool" }, table),
  );
  return {
    element,
    update(words) {
      const fits = (it) => callFits({ ...it, tool: it.tool ?? "", outcome: "done", id: "" }, words, "");
      const found = known.latencies.filter(fits);
      set(element, "hidden", found.length === 0);
      const longest = Math.max(1, ...found.map((it) => it.p99_us));
      const key = (it) => `${it.server}\n${it.tool ?? ""}`;
      sync(rows, found, key, makeRow, (row, it) => updateRow(row, it, longest));
    },
  };
}

function updateRow(row, it, longest) {
  const counts = [it.n_calls, it.n_failed].map((n) => n.toLocaleString("en"));
  const values = [...counts, ...[it.p50_us, it.p90_us, it.p99_us, it.max_us].map(duration)];
  [...row.children].slice(1).forEach((cell, place) => say(cell.firstElementChild, values[place]));
  set(row.children[2], "data-tone", it.n_failed > 0 ? "bad" : null);
  [it.p50_us, it.p90_us, it.p99_us].forEach((us, place) => {
    row.children[3 + place].lastElementChild.style.width = `${Math.max(2, (us / longest) * 100)}%`;
  });
}

function makeRow(it) {
  const cells = [0, 1, 2, 3, 4, 5].map((place) => {
    const gauge = place >= 2 && place <= 4 ? h("span", { class: "gauge", "aria-hidden": "true" }) : null;
    return h("td", { class: "number" }, h("span", {}), gauge);
  });
  const name = it.tool === undefined ? h("strong", {}, it.server) : h("span", { class: "indent" }, it.tool);
  return h("tr", { class: it.tool === undefined ? "whole" : null }, h("th", { scope: "row" }, name), ...cells);
}
