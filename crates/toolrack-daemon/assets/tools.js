// Tools view: search, and a form to call a tool.

import { request } from "./api.js";
import { button, emptyState, h, part, searchBox, setAttr, setText, syncChildren } from "./dom.js";
import { argumentForm } from "./form.js";
import { count, duration } from "./format.js";
import { problemView, resultView, truncate } from "./result.js";
import { compactJson, prettyJson } from "./sanitize.js";
import { findTools } from "./search.js";
import { store } from "./store.js";

/** Maximum number of rows. */
const MAX_ROWS = 300;

let main = null;
let search = null;
let list = null;
let detail = null;
/** Public name of the selected tool, and the schema from which its form was built. */
let selected = { name: null, schema: null };

export const tools = {
  open(container) {
    main = container;
    search = searchBox("Search tools", "Search by name or description, or server:name", update);
    list = h("ul", { class: "rows tools", "data-list": true, "aria-label": "Tools" });
    detail = h("section", { class: "detail", hidden: true });
    const head = h(
      "div",
      { class: "head" },
      h("h1", {}, "Tools"),
      h("p", { class: "summary", "data-part": "summary" }),
      search,
    );
    const footer = h("div", { "data-part": "footer" });
    main.append(h("div", { class: "split even" }, h("section", { class: "pane" }, head, list, footer), detail));
    search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        list.querySelector("[data-item]")?.focus();
      }
    });
  },

  navigate([name = null]) {
    if (name?.startsWith("?server=")) {
      search.value = `server:${name.slice("?server=".length)}`;
      history.replaceState(null, "", "#/tools");
      name = null;
    }
    if (selected.name !== name) {
      selected = { name, schema: null };
      detail.replaceChildren();
    }
    update();
  },

  update,

  close() {
    selected = { name: null, schema: null };
  },
};

function update() {
  if (store.tools === null) {
    return;
  }
  const matches = findTools(store.tools, search.value);
  const shown = matches.slice(0, MAX_ROWS);
  const isAll = matches.length === store.tools.length;
  setText(
    part(main, "summary"),
    isAll ? count(matches.length, "tool") : `${matches.length} of ${count(store.tools.length, "tool")}`,
  );
  syncChildren(list, shown, (tool) => tool.name, makeRow, updateRow);
  part(main, "footer").replaceChildren(...listFooter(matches.length, shown.length));
  updateDetail();
}

/** Empty state, or how many tools are not shown. */
function listFooter(matchCount, shownCount) {
  if (store.tools.length === 0) {
    const text = "Tools appear here once a server is running.";
    return [emptyState("No tools yet.", h("p", {}, text), h("a", { href: "#/servers" }, "Go to servers"))];
  }
  if (matchCount === 0) {
    const clear = button("Clear search", "quiet", () => {
      search.value = "";
      update();
    });
    return [emptyState("No matching tools.", clear)];
  }
  const hiddenCount = matchCount - shownCount;
  return hiddenCount > 0 ? [h("p", { class: "hint" }, `${hiddenCount} more tools. Search to find them.`)] : [];
}

function makeRow(tool) {
  return h(
    "li",
    { class: "row tool" },
    h(
      "a",
      { class: "name", "data-item": true, "data-part": "name", href: `#/tools/${encodeURIComponent(tool.name)}` },
      tool.raw_name,
    ),
    h("span", { class: "server-name" }, tool.server),
    h("span", { class: "command", "data-part": "description" }),
  );
}

function updateRow(row, tool) {
  setAttr(row, "data-open", selected.name === tool.name);
  setAttr(row, "data-off", !tool.is_connected);
  setAttr(part(row, "name"), "aria-current", selected.name === tool.name ? "true" : null);
  setText(part(row, "description"), (tool.description ?? "").split("\n", 1)[0]);
}

function updateDetail() {
  setAttr(detail, "hidden", selected.name === null);
  setAttr(detail.parentElement, "data-open", selected.name !== null);
  if (selected.name === null) {
    return;
  }
  const tool = store.tools.find(({ name }) => name === selected.name);
  if (tool === undefined) {
    const text = "Its server may have stopped or no longer offers it.";
    detail.replaceChildren(
      emptyState(`No tool named ${selected.name}.`, h("p", {}, text), h("a", { href: "#/tools" }, "All tools")),
    );
    selected.schema = null;
    return;
  }
  const schema = compactJson(tool.input_schema);
  // Keeps the input, unless the schema has changed.
  if (selected.schema !== schema) {
    selected.schema = schema;
    detail.replaceChildren(...buildDetail(tool));
  }
}

function buildDetail(tool) {
  setAttr(detail, "aria-label", tool.name);
  const head = h(
    "div",
    { class: "detail-head" },
    h("a", { class: "back", href: "#/tools", "aria-label": "Close" }, "×"),
    h("h2", {}, tool.title ?? tool.raw_name),
  );
  const names = h(
    "p",
    { class: "hint" },
    h("code", {}, tool.name),
    " on ",
    h("a", { href: `#/servers/${encodeURIComponent(tool.server)}` }, tool.server),
  );
  const description = h("p", { class: "description" }, tool.description ?? "No description.");
  const schemas = h(
    "details",
    {},
    h("summary", {}, "Input schema"),
    h("pre", { class: "output", tabindex: "0" }, truncate(prettyJson(tool.input_schema))),
  );
  return [head, names, description, ...tryIt(tool), schemas];
}

/** The form, the JSON editor for the arguments, and the result. */
function tryIt(tool) {
  const fields = argumentForm(tool.input_schema);
  const raw = h("textarea", { class: "code", rows: "8", spellcheck: "false", "aria-label": "Arguments as JSON" });
  const error = h("p", { class: "field-error", role: "alert" });
  const outcome = h("div", { class: "outcome", "data-part": "outcome", role: "status" });
  let isRaw = false;
  let abort = null;

  function read() {
    setText(error, "");
    if (!isRaw) {
      return fields.read();
    }
    try {
      return { value: JSON.parse(raw.value || "{}"), isValid: true };
    } catch (cause) {
      setText(error, `Invalid JSON: ${cause.message}`);
      return { value: {}, isValid: false };
    }
  }

  const body = h("div", {}, fields.element);
  const toggleRaw = button("Edit as JSON", "quiet", () => {
    const { value, isValid } = read();
    if (isRaw && !isValid) {
      return;
    }
    isRaw = !isRaw;
    raw.value = prettyJson(value);
    fields.write(value);
    body.replaceChildren(isRaw ? raw : fields.element);
    setText(toggleRaw, isRaw ? "Edit as form" : "Edit as JSON");
  });

  const run = button("Run", "primary", async () => {
    const { value, isValid } = read();
    if (!isValid) {
      body.querySelector("[aria-invalid]")?.focus();
      return;
    }
    abort = new AbortController();
    setAttr(cancel, "hidden", false);
    outcome.replaceChildren(h("p", { class: "hint running" }, "Running…"));
    outcome.replaceChildren(...(await callTool(tool, value, abort.signal)));
    setAttr(cancel, "hidden", true);
  });
  const cancel = button("Cancel", "quiet", () => abort?.abort(), { hidden: true });
  const box = h(
    "div",
    { class: "try-it stack" },
    h("h3", {}, "Try it"),
    body,
    error,
    h("div", { class: "actions" }, toggleRaw, cancel, run),
  );
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run.click();
    }
  });
  return [box, outcome];
}

async function callTool(tool, value, signal) {
  const started = performance.now();
  const elapsed = () => duration((performance.now() - started) * 1000);
  try {
    const call = { server: tool.server, tool: tool.raw_name, arguments: value };
    // The timeout of the server applies, not that of the API client.
    const response = await request("POST", "/api/calls", call, { signal, timeout: null });
    const link = h("a", { href: `#/calls/${encodeURIComponent(response.id)}` }, elapsed());
    const label = response.is_error ? "Tool error" : "Done";
    const tone = response.is_error ? "warn" : "ok";
    return [
      h("div", { class: "outcome-head" }, h("span", { class: "pill", "data-tone": tone }, label), " in ", link),
      resultView(response),
    ];
  } catch (problem) {
    const label = problem.code === "CANCELLED" ? "Cancelled" : "Failed";
    return [
      h("div", { class: "outcome-head" }, h("span", { class: "pill", "data-tone": "bad" }, label), ` after ${elapsed()}`),
      problemView(problem),
    ];
  }
}
