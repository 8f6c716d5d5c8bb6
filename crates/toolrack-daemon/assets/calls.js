// The view of calls: the latest on a common axis of time, how long they take, and one of them in full.

import { ask } from "./api.js";
import { button, empty, h, part, s, say, searchBox, set, sync } from "./dom.js";
import { bytes, clock, count, duration } from "./format.js";
import { latencies } from "./latency.js";
import { attempt } from "./notifications.js";
import { callFits, wanted } from "./search.js";
import { known } from "./store.js";
import { axisOf, barOf, endOf, marksOf } from "./timeline.js";

const MAX_SHOWN = 200;
const TONES = { done: "ok", tool_error: "warn", failed: "bad", abandoned: "off" };
const WORDS = { done: "Done", tool_error: "Tool error", failed: "Failed", abandoned: "Abandoned" };
const OUTCOMES = [
  ["", "Any outcome"],
  ["running", "Running"],
  ["done", "Done"],
  ["trouble", "Anything but done"],
  ["tool_error", "Tool error"],
  ["failed", "Failed"],
  ["abandoned", "Abandoned"],
];
const DELIVERIES = {
  not_sent: "Not sent: the server did not get it.",
  unknown: "Unknown: the server may have acted on it.",
  answered: "Answered: the server got it and said so.",
};

let main = null;
let search = null;
let outcome = null;
let rows = null;
let detail = null;
let latency = null;
let timer = null;
/** The calls that were there when the list was paused. */
let paused = null;
let opened = null;
/** What the daemon says of the call that is open, if the list does not have it. */
let record = null;

export const calls = {
  open(where) {
    main = where;
    search = searchBox("Filter calls", "Filter by server, tool or id", update);
    outcome = h(
      "select",
      { "aria-label": "Outcome", onchange: update },
      ...OUTCOMES.map(([value, text]) => h("option", { value }, text)),
    );
    const pause = button("Pause", "quiet", () => {
      paused = paused === null ? [...known.calls] : null;
      say(pause, paused === null ? "Pause" : "Resume");
      update();
    });
    rows = h("tbody", { "data-list": true });
    const head = h(
      "tr",
      {},
      ...["Started", "Tool", "Outcome", "Took"].map((it) => h("th", { scope: "col" }, it)),
      h(
        "th",
        { scope: "col", class: "flow" },
        h("span", { class: "unseen" }, "Waterfall"),
        h("span", { class: "axis", "data-part": "axis" }),
      ),
    );
    const table = h("table", { class: "calls", "data-part": "table" }, h("thead", {}, head), rows);
    latency = latencies();
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
          h("div", { "data-part": "nothing" }),
          latency.element,
        ),
        detail,
      ),
    );
    // Bars of calls under way grow.
    timer = setInterval(
      () => (paused === null && known.calls.some((it) => it.outcome === null) ? update() : null),
      200,
    );
  },

  go([id = null]) {
    if (id !== opened) {
      opened = id;
      record = null;
      look();
    }
    update();
  },

  update,

  close() {
    clearInterval(timer);
    paused = null;
    opened = null;
  },
};

function update() {
  const now = Date.now();
  const words = wanted(search.value);
  const all = paused ?? known.calls;
  const found = all.filter((it) => callFits(it, words, outcome.value));
  const shown = found.slice(0, MAX_SHOWN);
  const axis = axisOf(shown, now);
  const running = shown.filter((it) => it.outcome === null).length;
  say(
    part(main, "summary"),
    [count(found.length, "call"), running > 0 ? `${running} running` : null].filter(Boolean).join(", "),
  );
  sync(
    rows,
    shown,
    (it) => it.id,
    makeRow,
    (row, call) => updateRow(row, call, axis, now),
  );
  set(part(main, "table"), "hidden", shown.length === 0);
  sync(
    part(main, "axis"),
    marksOf(axis, 4),
    (it) => it.label,
    (it) => h("span", {}, it.label),
    (mark, { left }) => {
      mark.style.left = `${left}%`;
    },
  );
  part(main, "nothing").replaceChildren(...nothing(all.length, shown.length, found.length));
  latency.update(words);
  updateDetail(now);
}

function nothing(n_all, n_shown, n_found) {
  if (n_all === 0) {
    const text = "Calls of every agent and program that uses this daemon appear here as they happen.";
    return [empty("No calls yet.", h("p", {}, text), h("a", { href: "#/tools" }, "Try a tool"))];
  }
  if (n_shown === 0) {
    return [empty("No call fits.", h("p", {}, "Change the filter, or choose any outcome."))];
  }
  return n_found > n_shown ? [h("p", { class: "hint" }, `${n_found - n_shown} older ones; filter to see them.`)] : [];
}

function makeRow(call) {
  const bar = s("rect", { "data-part": "bar", y: "3", height: "8", rx: "1.5" });
  return h(
    "tr",
    { class: "call" },
    h("td", { class: "time" }, clock(call.started_ms)),
    h(
      "td",
      { class: "what" },
      h("a", { href: `#/calls/${encodeURIComponent(call.id)}`, "data-item": true, "data-part": "name" }, call.tool),
      h("span", { class: "server-name" }, call.server),
    ),
    h("td", {}, h("span", { class: "word", "data-part": "outcome" })),
    h("td", { class: "took", "data-part": "took" }),
    h("td", { class: "flow" }, s("svg", { class: "bar", height: "14", "aria-hidden": "true" }, bar)),
  );
}

function updateRow(row, call, axis, now) {
  set(row, "data-tone", TONES[call.outcome] ?? "busy");
  set(row, "data-open", call.id === opened);
  set(part(row, "name"), "aria-current", call.id === opened ? "true" : null);
  say(part(row, "outcome"), WORDS[call.outcome] ?? "Running");
  say(part(row, "took"), duration((endOf(call, now) - call.started_ms) * 1000));
  const bar = barOf(call, axis, now);
  set(part(row, "bar"), "x", `${(bar?.left ?? 0).toFixed(2)}%`);
  set(part(row, "bar"), "width", bar === null ? "0" : `${bar.width.toFixed(2)}%`);
}

/** Asks for the call that is open: the list may not have it, or not its sizes. */
async function look() {
  const id = opened;
  if (id === null) {
    return;
  }
  try {
    const found = await ask("GET", `/api/calls/${encodeURIComponent(id)}`);
    if (id === opened) {
      record = found.outcome === undefined ? null : { ...found, started_ms: found.time_ms - found.duration_us / 1000 };
    }
  } catch (problem) {
    if (id === opened) {
      record = { problem };
    }
  }
  update();
}

function updateDetail(now) {
  set(detail, "hidden", opened === null);
  set(detail.parentElement, "data-open", opened !== null);
  if (opened === null) {
    detail.replaceChildren();
    detail.dataset.shown = "";
    return;
  }
  const listed = known.calls.find((it) => it.id === opened);
  const call = listed?.outcome === null ? listed : { ...listed, ...record };
  if (listed && listed.outcome !== null && record === null && detail.dataset.asked !== opened) {
    detail.dataset.asked = opened;
    look();
  }
  // What is shown is made anew only if it is different, so that a selection in it survives.
  const state = JSON.stringify([call, call.outcome === null ? Math.floor(now / 200) : 0]);
  if (detail.dataset.shown !== state) {
    detail.dataset.shown = state;
    detail.replaceChildren(...build(call, now));
  }
}

function build(call, now) {
  const close = h("a", { class: "back", href: "#/calls", "aria-label": "Close" }, "×");
  if (call.server === undefined) {
    const text = call.problem ? call.problem.message : "It is being looked up.";
    return [
      h("div", { class: "detail-head" }, close, h("h2", {}, "Call")),
      empty(text, h("a", { href: "#/calls" }, "All calls")),
    ];
  }
  set(detail, "aria-label", `Call of ${call.tool}`);
  const tone = TONES[call.outcome] ?? "busy";
  const facts = [
    ["Server", h("a", { href: `#/servers/${encodeURIComponent(call.server)}` }, call.server)],
    ["Started", new Date(call.started_ms).toLocaleString()],
    ["Took", duration((endOf({ ...call, duration_us: call.duration_us ?? null }, now) - call.started_ms) * 1000)],
    ["Delivery", DELIVERIES[call.delivery] ?? "Under way."],
    ["Arguments", call.argument_bytes === undefined ? "–" : bytes(call.argument_bytes)],
    ["Result", call.result_bytes === undefined ? "–" : bytes(call.result_bytes)],
    ["Agent", call.agent ?? "–"],
    ["Id", call.id],
  ];
  const tool = known.tools?.find((it) => it.server === call.server && it.raw_name === call.tool);
  const again = tool
    ? h("a", { class: "button quiet", href: `#/tools/${encodeURIComponent(tool.name)}` }, "Open the tool")
    : null;
  const cancel = call.outcome === null ? button("Cancel the call", "quiet", () => takeBack(call.id)) : null;
  return [
    h(
      "div",
      { class: "detail-head" },
      close,
      h("h2", {}, call.tool),
      h("span", { class: "pill", "data-tone": tone }, WORDS[call.outcome] ?? "Running"),
    ),
    h("div", { class: "actions" }, again, cancel),
    h("dl", { class: "facts" }, ...facts.map(([fact, value]) => h("div", {}, h("dt", {}, fact), h("dd", {}, value)))),
    h("p", { class: "hint" }, "Arguments and results are not kept."),
  ];
}

async function takeBack(id) {
  await attempt("The call was not cancelled.", () => ask("POST", `/api/calls/${encodeURIComponent(id)}/cancel`));
}
