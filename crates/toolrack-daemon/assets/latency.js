// Latency table: percentiles by server and tool.

import { h, setAttr, setText, syncChildren } from "./dom.js";
import { duration } from "./format.js";
import { callMatches } from "./search.js";
import { store } from "./store.js";

const COLUMNS = ["Server / tool", "Calls", "Failed", "p50", "p90", "p99", "Max"];

/** `{ element, update(terms) }`. `terms` is a parsed query. */
export function latencyTable() {
  const headers = COLUMNS.map((title, index) => h("th", { scope: "col", class: index > 0 ? "number" : null }, title));
  const rows = h("tbody");
  const table = h("table", { class: "latency" }, h("thead", {}, h("tr", {}, ...headers)), rows);
  const element = h(
    "div",
    { class: "pane", hidden: true },
    h("h2", {}, "Latency"),
    h("p", { class: "hint" }, "Recent calls by server and tool."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latency by server and tool" }, table),
  );
  return {
    element,
    update(terms) {
      const matches = (row) => callMatches({ ...row, tool: row.tool ?? "", outcome: "done", id: "" }, terms, "");
      const shown = store.latencies.filter(matches);
      setAttr(element, "hidden", shown.length === 0);
      const longest = Math.max(1, ...shown.map((row) => row.p99_us));
      const key = ({ server, tool }) => `${server}\n${tool ?? ""}`;
      syncChildren(rows, shown, key, makeRow, (row, latency) => updateRow(row, latency, longest));
    },
  };
}

function updateRow(row, latency, longest) {
  const counts = [latency.n_calls, latency.n_failed].map((n) => n.toLocaleString("en"));
  const values = [...counts, ...[latency.p50_us, latency.p90_us, latency.p99_us, latency.max_us].map(duration)];
  [...row.children].slice(1).forEach((cell, index) => setText(cell.firstElementChild, values[index]));
  setAttr(row.children[2], "data-tone", latency.n_failed > 0 ? "bad" : null);
  [latency.p50_us, latency.p90_us, latency.p99_us].forEach((us, index) => {
    row.children[3 + index].lastElementChild.style.width = `${Math.max(2, (us / longest) * 100)}%`;
  });
}

function makeRow({ server, tool }) {
  const cells = [0, 1, 2, 3, 4, 5].map((index) => {
    const gauge = index >= 2 && index <= 4 ? h("span", { class: "gauge", "aria-hidden": "true" }) : null;
    return h("td", { class: "number" }, h("span", {}), gauge);
  });
  const name = tool === undefined ? h("strong", {}, server) : h("span", { class: "indent" }, tool);
  return h("tr", { class: tool === undefined ? "total" : null }, h("th", { scope: "row" }, name), ...cells);
}
