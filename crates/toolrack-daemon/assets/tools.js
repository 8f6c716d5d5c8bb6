// The view of tools: finding one, and trying it.

import { ask } from "./api.js";
import { button, empty, h, part, say, searchBox, set, sync } from "./dom.js";
import { form } from "./form.js";
import { count, duration } from "./format.js";
import { cut, failureOf, resultOf } from "./result.js";
import { findTools } from "./search.js";
import { known } from "./store.js";
import { compact, pretty } from "./sanitize.js";

/** More rows than this help nobody. */
const MAX_SHOWN = 300;

let main = null;
let search = null;
let list = null;
let detail = null;
/** The public name of the tool that is open, and its schema as it was when the form was made. */
let opened = { name: null, schema: null };

export const tools = {
  open(where) {
    main = where;
    search = searchBox("Search tools", "Search names and descriptions, or server:name", update);
    list = h("ul", { class: "rows tools", "data-list": true, "aria-label": "Tools" });
    detail = h("section", { class: "detail", hidden: true });
    const head = h(
      "div",
      { class: "head" },
      h("h1", {}, "Tools"),
      h("p", { class: "summary", "data-part": "summary" }),
      search,
    );
    const nothing = h("div", { "data-part": "nothing" });
    main.append(h("div", { class: "split even" }, h("section", { class: "pane" }, head, list, nothing), detail));
    search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        list.querySelector("[data-item]")?.focus();
      }
    });
  },

  go([name = null]) {
    if (name?.startsWith("?server=")) {
      search.value = `server:${name.slice("?server=".length)}`;
      history.replaceState(null, "", "#/tools");
      name = null;
    }
    if (opened.name !== name) {
      opened = { name, schema: null };
      detail.replaceChildren();
    }
    update();
  },

  update,

  close() {
    opened = { name: null, schema: null };
  },
};

function update() {
  if (known.tools === null) {
    return;
  }
  const found = findTools(known.tools, search.value);
  const shown = found.slice(0, MAX_SHOWN);
  const isAll = found.length === known.tools.length;
  say(
    part(main, "summary"),
    isAll ? count(found.length, "tool") : `${found.length} of ${count(known.tools.length, "tool")}`,
  );
  sync(list, shown, (it) => it.name, makeRow, updateRow);
  part(main, "nothing").replaceChildren(...advice(found.length, shown.length));
  updateDetail();
}

function advice(n_found, n_shown) {
  if (known.tools.length === 0) {
    const text = "Tools appear here as soon as a server runs.";
    return [empty("No tools yet.", h("p", {}, text), h("a", { href: "#/servers" }, "Go to servers"))];
  }
  if (n_found === 0) {
    const clear = button("Clear the search", "quiet", () => {
      search.value = "";
      update();
    });
    return [empty("No tool fits.", clear)];
  }
  return n_found > n_shown ? [h("p", { class: "hint" }, `${n_found - n_shown} more; search to see them.`)] : [];
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
    h("span", { class: "origin", "data-part": "about" }),
  );
}

function updateRow(row, tool) {
  set(row, "data-open", opened.name === tool.name);
  set(row, "data-off", !tool.is_connected);
  set(part(row, "name"), "aria-current", opened.name === tool.name ? "true" : null);
  say(part(row, "about"), (tool.description ?? "").split("\n", 1)[0]);
}

function updateDetail() {
  set(detail, "hidden", opened.name === null);
  set(detail.parentElement, "data-open", opened.name !== null);
  if (opened.name === null) {
    return;
  }
  const tool = known.tools.find((it) => it.name === opened.name);
  if (tool === undefined) {
    const text = "Its server may have stopped, or does not offer it any more.";
    detail.replaceChildren(
      empty(`There is no tool ${opened.name}.`, h("p", {}, text), h("a", { href: "#/tools" }, "All tools")),
    );
    opened.schema = null;
    return;
  }
  const schema = compact(tool.input_schema);
  // What was typed stays, unless the tool takes something else now.
  if (opened.schema !== schema) {
    opened.schema = schema;
    detail.replaceChildren(...build(tool));
  }
}

function build(tool) {
  set(detail, "aria-label", tool.name);
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
    " of ",
    h("a", { href: `#/servers/${encodeURIComponent(tool.server)}` }, tool.server),
  );
  const about = h("p", { class: "about" }, tool.description ?? "Its server says nothing about it.");
  const schemas = h(
    "details",
    {},
    h("summary", {}, "Schema"),
    h("pre", { class: "output", tabindex: "0" }, cut(pretty(tool.input_schema))),
  );
  return [head, names, about, ...trial(tool), schemas];
}

/** The form, the arguments as JSON, and what came of it. */
function trial(tool) {
  const fields = form(tool.input_schema);
  const raw = h("textarea", { class: "code", rows: "8", spellcheck: "false", "aria-label": "Arguments as JSON" });
  const fault = h("p", { class: "fault", role: "alert" });
  const outcome = h("div", { class: "outcome", "data-part": "outcome", role: "status" });
  let isRaw = false;
  let recall = null;

  function read() {
    say(fault, "");
    if (!isRaw) {
      return fields.read();
    }
    try {
      return { value: JSON.parse(raw.value || "{}"), isSound: true };
    } catch (error) {
      say(fault, `This is no JSON: ${error.message}.`);
      return { value: {}, isSound: false };
    }
  }

  const body = h("div", {}, fields.element);
  const swap = button("As JSON", "quiet", () => {
    const { value, isSound } = read();
    if (isRaw && !isSound) {
      return;
    }
    isRaw = !isRaw;
    raw.value = pretty(value);
    fields.write(value);
    body.replaceChildren(isRaw ? raw : fields.element);
    say(swap, isRaw ? "As form" : "As JSON");
  });

  const go = button("Run", "primary", async () => {
    const { value, isSound } = read();
    if (!isSound) {
      body.querySelector("[aria-invalid]")?.focus();
      return;
    }
    recall = new AbortController();
    set(cancel, "hidden", false);
    outcome.replaceChildren(h("p", { class: "hint running" }, "Running"));
    outcome.replaceChildren(...(await call(tool, value, recall.signal)));
    set(cancel, "hidden", true);
  });
  const cancel = button("Cancel", "quiet", () => recall?.abort(), { hidden: true });
  const box = h(
    "div",
    { class: "trial stack" },
    h("h3", {}, "Try it"),
    body,
    fault,
    h("div", { class: "actions" }, swap, cancel, go),
  );
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      go.click();
    }
  });
  return [box, outcome];
}

async function call(tool, value, signal) {
  const began = performance.now();
  const took = () => duration((performance.now() - began) * 1000);
  try {
    const request = { server: tool.server, tool: tool.raw_name, arguments: value };
    // A call ends by the timeout of its server, not by ours.
    const answer = await ask("POST", "/api/calls", request, { signal, patience: null });
    const link = h("a", { href: `#/calls/${encodeURIComponent(answer.id)}` }, took());
    const word = answer.is_error ? "The tool says it failed" : "Done";
    const tone = answer.is_error ? "warn" : "ok";
    return [
      h("div", { class: "outcome-head" }, h("span", { class: "pill", "data-tone": tone }, word), " in ", link),
      resultOf(answer),
    ];
  } catch (problem) {
    const word = problem.code === "CANCELLED" ? "Cancelled" : "Failed";
    return [
      h("div", { class: "outcome-head" }, h("span", { class: "pill", "data-tone": "bad" }, word), ` after ${took()}`),
      failureOf(problem),
    ];
  }
}
