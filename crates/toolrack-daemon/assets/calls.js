// Calls view: waterfall of recent calls, latency table, and details of one call.

import { request } from "./api.js";
import { button, emptyState, h, part, searchBox, setAttr, setText, svg, syncChildren } from "./dom.js";
import { bytes, clock, count, duration } from "./format.js";
import { latencyTable } from "./latency.js";
import { attempt } from "./notifications.js";
import { callMatches, parseQuery } from "./search.js";
import { store } from "./store.js";
import { axisTicks, callBar, endTime, timeAxis } from "./timeline.js";

const MAX_ROWS = 200;
const TONES = { done: "ok", tool_error: "warn", failed: "bad", abandoned: "off" };
const LABELS = { done: "Done", tool_error: "Tool error", failed: "Failed", abandoned: "Cancelled" };
const OUTCOMES = [
  ["", "All outcomes"],
  ["running", "Running"],
  ["done", "Done"],
  ["unsuccessful", "Not successful"],
  ["tool_error", "Tool error"],
  ["failed", "Failed"],
  ["abandoned", "Cancelled"],
];
const DELIVERIES = {
  not_sent: "Not sent: the server did not receive the call.",
  unknown: "Unknown: the server may have acted on the call.",
  answered: "Answered: the server received the call and responded.",
};

let main = null;
let search = null;
let outcome = null;
let rows = null;
let detail = null;
let latency = null;
let timer = null;
/** The calls at the time the list was paused. */
let paused = null;
let selected = null;
/** The record of the selected call from the history: the list lacks old calls and sizes. */
let record = null;

export const calls = {
  open(container) {
    main = container;
    search = searchBox("Filter calls", "Filter by server, tool or ID", update);
    outcome = h(
      "select",
      { "aria-label": "Outcome", onchange: update },
      ...OUTCOMES.map(([value, text]) => h("option", { value }, text)),
    );
    const pause = button("Pause", "quiet", () => {
      paused = paused === null ? [...store.calls] : null;
      setText(pause, paused === null ? "Pause" : "Resume");
      update();
    });
    rows = h("tbody", { "data-list": true });
    const head = h(
      "tr",
      {},
      ...["Started", "Tool", "Outcome", "Duration"].map((title) => h("th", { scope: "col" }, title)),
      h(
        "th",
        { scope: "col", class: "waterfall" },
        h("span", { class: "visually-hidden" }, "Waterfall"),
        h("span", { class: "axis", "data-part": "axis" }),
      ),
    );
    const table = h("table", { class: "calls", "data-part": "table" }, h("thead", {}, head), rows);
    latency = latencyTable();
    detail = h("section", { class: "detail", hidden: true });
    main.append(
      h(
        "div",
        { class: "split" },
        h(
          "section",
          { class: "pane" },
          h(
            "div",
            { class: "head" },
            h("h1", {}, "Calls"),
            h("p", { class: "summary", "data-part": "summary" }),
            search,
            outcome,
            pause,
          ),
          table,
          h("div", { "data-part": "footer" }),
          latency.element,
        ),
        detail,
      ),
    );
    // The bars of running calls grow.
    timer = setInterval(
      () => (paused === null && store.calls.some((call) => call.outcome === null) ? update() : null),
      200,
    );
  },

  navigate([id = null]) {
    if (id !== selected) {
      selected = id;
      record = null;
      loadRecord();
    }
    update();
  },

  update,

  close() {
    clearInterval(timer);
    paused = null;
    selected = null;
  },
};

function update() {
  const now = Date.now();
  const terms = parseQuery(search.value);
  const all = paused ?? store.calls;
  const matches = all.filter((call) => callMatches(call, terms, outcome.value));
  const shown = matches.slice(0, MAX_ROWS);
  const axis = timeAxis(shown, now);
  const running = shown.filter((call) => call.outcome === null).length;
  setText(
    part(main, "summary"),
    [count(matches.length, "call"), running > 0 ? `${running} running` : null].filter(Boolean).join(", "),
  );
  syncChildren(
    rows,
    shown,
    (call) => call.id,
    makeRow,
    (row, call) => updateRow(row, call, axis, now),
  );
  setAttr(part(main, "table"), "hidden", shown.length === 0);
  syncChildren(
    part(main, "axis"),
    axisTicks(axis, 4),
    ({ label }) => label,
    ({ label }) => h("span", {}, label),
    (element, { left }) => {
      element.style.left = `${left}%`;
    },
  );
  part(main, "footer").replaceChildren(...listFooter(all.length, shown.length, matches.length));
  latency.update(terms);
  updateDetail(now);
}

/** Empty state, or how many calls are not shown. */
function listFooter(allCount, shownCount, matchCount) {
  if (allCount === 0) {
    const text = "Calls from all clients of this daemon appear here live.";
    return [emptyState("No calls yet.", h("p", {}, text), h("a", { href: "#/tools" }, "Try a tool"))];
  }
  if (shownCount === 0) {
    return [emptyState("No matching calls.", h("p", {}, "Change the filter or the outcome."))];
  }
  const hiddenCount = matchCount - shownCount;
  const text = `${hiddenCount} older calls not shown. Filter to see them.`;
  return hiddenCount > 0 ? [h("p", { class: "hint" }, text)] : [];
}

function makeRow(call) {
  const bar = svg("rect", { "data-part": "bar", y: "3", height: "8", rx: "1.5" });
  return h(
    "tr",
    { class: "call" },
    h("td", { class: "time" }, clock(call.started_ms)),
    h(
      "td",
      { class: "call-name" },
      h("a", { href: `#/calls/${encodeURIComponent(call.id)}`, "data-item": true, "data-part": "name" }, call.tool),
      h("span", { class: "server-name" }, call.server),
    ),
    h("td", {}, h("span", { class: "label", "data-part": "outcome" })),
    h("td", { class: "duration", "data-part": "duration" }),
    h("td", { class: "waterfall" }, svg("svg", { class: "bar", height: "14", "aria-hidden": "true" }, bar)),
  );
}

function updateRow(row, call, axis, now) {
  setAttr(row, "data-tone", TONES[call.outcome] ?? "busy");
  setAttr(row, "data-open", call.id === selected);
  setAttr(part(row, "name"), "aria-current", call.id === selected ? "true" : null);
  setText(part(row, "outcome"), LABELS[call.outcome] ?? "Running");
  setText(part(row, "duration"), duration((endTime(call, now) - call.started_ms) * 1000));
  const bar = callBar(call, axis, now);
  setAttr(part(row, "bar"), "x", `${(bar?.left ?? 0).toFixed(2)}%`);
  setAttr(part(row, "bar"), "width", bar === null ? "0" : `${bar.width.toFixed(2)}%`);
}

/** Loads the selected call from the history. */
async function loadRecord() {
  const id = selected;
  if (id === null) {
    return;
  }
  try {
    const call = await request("GET", `/api/calls/${encodeURIComponent(id)}`);
    if (id === selected) {
      record = call.outcome === undefined ? null : { ...call, started_ms: call.time_ms - call.duration_us / 1000 };
    }
  } catch (problem) {
    if (id === selected) {
      record = { problem };
    }
  }
  update();
}

function updateDetail(now) {
  setAttr(detail, "hidden", selected === null);
  setAttr(detail.parentElement, "data-open", selected !== null);
  if (selected === null) {
    detail.replaceChildren();
    detail.dataset.rendered = "";
    return;
  }
  const listed = store.calls.find((call) => call.id === selected);
  const call = listed?.outcome === null ? listed : { ...listed, ...record };
  if (listed && listed.outcome !== null && record === null && detail.dataset.requested !== selected) {
    detail.dataset.requested = selected;
    loadRecord();
  }
  // Rebuilt only if something changed, so that a text selection survives.
  const state = JSON.stringify([call, call.outcome === null ? Math.floor(now / 200) : 0]);
  if (detail.dataset.rendered !== state) {
    detail.dataset.rendered = state;
    detail.replaceChildren(...buildDetail(call, now));
  }
}

function buildDetail(call, now) {
  const close = h("a", { class: "back", href: "#/calls", "aria-label": "Close" }, "×");
  if (call.server === undefined) {
    const text = call.problem ? call.problem.message : "Loading…";
    return [
      h("div", { class: "detail-head" }, close, h("h2", {}, "Call")),
      emptyState(text, h("a", { href: "#/calls" }, "All calls")),
    ];
  }
  setAttr(detail, "aria-label", `Call of ${call.tool}`);
  const tone = TONES[call.outcome] ?? "busy";
  const facts = [
    ["Server", h("a", { href: `#/servers/${encodeURIComponent(call.server)}` }, call.server)],
    ["Started", new Date(call.started_ms).toLocaleString()],
    ["Duration", duration((endTime({ ...call, duration_us: call.duration_us ?? null }, now) - call.started_ms) * 1000)],
    ["Delivery", DELIVERIES[call.delivery] ?? "Running."],
    ["Arguments", call.argument_bytes === undefined ? "–" : bytes(call.argument_bytes)],
    ["Result", call.result_bytes === undefined ? "–" : bytes(call.result_bytes)],
    ["Agent", call.agent ?? "–"],
    ["ID", call.id],
  ];
  const tool = store.tools?.find((other) => other.server === call.server && other.raw_name === call.tool);
  const toolLink = tool
    ? h("a", { class: "button quiet", href: `#/tools/${encodeURIComponent(tool.name)}` }, "Open tool")
    : null;
  const cancel = call.outcome === null ? button("Cancel call", "quiet", () => cancelCall(call.id)) : null;
  return [
    h(
      "div",
      { class: "detail-head" },
      close,
      h("h2", {}, call.tool),
      h("span", { class: "pill", "data-tone": tone }, LABELS[call.outcome] ?? "Running"),
    ),
    h("div", { class: "actions" }, toolLink, cancel),
    h("dl", { class: "facts" }, ...facts.map(([fact, value]) => h("div", {}, h("dt", {}, fact), h("dd", {}, value)))),
    h("p", { class: "hint" }, "Arguments and results are not stored."),
  ];
}

async function cancelCall(id) {
  await attempt("Could not cancel the call.", () => request("POST", `/api/calls/${encodeURIComponent(id)}/cancel`));
}
