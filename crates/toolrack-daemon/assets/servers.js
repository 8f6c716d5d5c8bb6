// The view of servers: how each is, what to do next, and everything about one of them.

import { addServer } from "./add-server.js";
import { ask } from "./api.js";
import { button, empty, h, part, say, set, sync } from "./dom.js";
import { editor } from "./server-editor.js";
import { bytes, count } from "./format.js";
import { attempt, confirm, note } from "./notifications.js";
import { log, overview } from "./server-detail.js";
import { origin, standing } from "./status.js";
import { known, refreshServers } from "./store.js";

const TABS = { "": "Overview", log: "Log", edit: "Edit" };
/** How old what is said of memory may be. */
const WEIGH_MS = 5000;
const DONE = { restart: "restarted", start: "started", stop: "stopped", enable: "enabled", disable: "disabled" };

let main = null;
let list = null;
let detail = null;
let timer = null;
/** The name of the server that is open, its tab, and what the tab does. */
let opened = { name: null, tab: "", body: null };

const path = (name, verb) => `/api/servers/${encodeURIComponent(name)}${verb ? `/${verb}` : ""}`;
const address = (name, tab) => `#/servers/${encodeURIComponent(name)}${tab ? `/${tab}` : ""}`;
const find = (name) => known.servers?.find((it) => it.config.name === name);

export const servers = {
  open(where) {
    main = where;
    list = h("ul", { class: "rows servers", "data-list": true, "aria-label": "Servers" });
    detail = h("section", { class: "detail", hidden: true });
    const head = h(
      "div",
      { class: "head" },
      h("h1", {}, "Servers"),
      h("p", { class: "summary", "data-part": "summary" }),
    );
    head.append(button("Add server", "primary", () => addServer((name) => (location.hash = address(name)))));
    main.append(h("div", { class: "split" }, h("section", { class: "pane" }, head, list), detail));
    // Waiting times run down, and memory changes, without any event.
    timer = setInterval(tick, 1000);
  },

  go([name = null, tab = ""]) {
    const isSame = opened.name === name && opened.tab === tab;
    opened = isSame ? opened : { name, tab: TABS[tab] ? tab : "", body: null };
    if (!isSame) {
      detail.replaceChildren();
    }
    update();
  },

  update,

  close() {
    clearInterval(timer);
    opened = { name: null, tab: "", body: null };
  },
};

function tick() {
  const isWeighed = Date.now() - known.servers_at < WEIGH_MS || document.hidden;
  if (!isWeighed && known.live === "live") {
    refreshServers();
  } else if (known.servers?.some((it) => it.status.retry_in_ms)) {
    update();
  }
}

function update() {
  if (known.servers === null) {
    return;
  }
  const running = known.servers.filter((it) => it.status.phase === "connected").length;
  say(part(main, "summary"), known.servers.length === 0 ? "" : `${running} of ${known.servers.length} running`);
  sync(list, known.servers, (it) => it.config.id, makeRow, updateRow);
  const nothing = part(main, "nothing");
  if (known.servers.length === 0 && nothing === null) {
    const advice = "Add one from the command that starts it, its URL, or the JSON of another tool.";
    const none = empty("No servers yet.", h("p", {}, advice));
    none.dataset.part = "nothing";
    list.after(none);
  } else if (known.servers.length > 0) {
    nothing?.remove();
  }
  updateDetail();
}

function makeRow() {
  const row = h(
    "li",
    { class: "row" },
    h("span", { class: "dot", "data-part": "dot", "aria-hidden": "true" }),
    h(
      "div",
      { class: "who" },
      h("a", { class: "name", "data-item": true, "data-part": "name" }),
      h("span", { class: "origin", "data-part": "origin" }),
    ),
    h(
      "div",
      { class: "state" },
      h("span", { "data-part": "word", class: "word" }),
      h("span", { class: "reason", "data-part": "reason" }),
    ),
    h("span", { class: "figure", "data-part": "tools" }),
    h("span", { class: "figure", "data-part": "memory", title: "Memory of all its processes" }),
    h(
      "div",
      { class: "next" },
      button("", "quiet", () => proceed(row.dataset.name, row.dataset.verb), { "data-part": "next" }),
      button("", "switch", () => flip(row.dataset.name), { role: "switch", "data-part": "switch" }),
    ),
  );
  return row;
}

function updateRow(row, server) {
  const { config, status } = server;
  const { word, tone, reason, hint, next } = standing(server, Date.now() - known.servers_at);
  row.dataset.name = config.name;
  row.dataset.verb = next.verb;
  set(row, "data-tone", tone);
  set(row, "data-open", opened.name === config.name);
  say(part(row, "name"), config.name);
  set(part(row, "name"), "href", address(config.name));
  set(part(row, "name"), "aria-current", opened.name === config.name ? "true" : null);
  say(part(row, "origin"), origin(config));
  set(part(row, "origin"), "title", origin(config));
  say(part(row, "word"), word);
  say(part(row, "reason"), reason ?? "");
  set(part(row, "reason"), "title", [reason, hint].filter(Boolean).join("\n"));
  say(part(row, "tools"), status.n_tools > 0 || tone === "ok" ? count(status.n_tools, "tool") : "");
  say(part(row, "memory"), status.memory_bytes ? bytes(status.memory_bytes) : "");
  say(part(row, "next"), next.label);
  set(part(row, "next"), "aria-label", `${next.label}: ${config.name}`);
  set(part(row, "switch"), "aria-checked", String(config.enabled));
  set(part(row, "switch"), "aria-label", `Enabled: ${config.name}`);
}

async function flip(name) {
  await run(name, find(name)?.config.enabled ? "disable" : "enable");
}

async function run(name, verb) {
  const went = await attempt(`${name} was not ${DONE[verb]}.`, () => ask("POST", path(name, verb)));
  await refreshServers();
  if (went && verb === "restart") {
    note(`${name} was restarted.`);
  }
}

async function proceed(name, verb) {
  if (verb === "open") {
    location.hash = `#/tools/?server=${encodeURIComponent(name)}`;
  } else if (verb === "login") {
    location.hash = address(name);
  } else {
    await run(name, verb);
  }
}

async function remove(name) {
  const details = "Its entry is taken out of the config file and its processes are ended.";
  if (await confirm(`Remove ${name}?`, details, "Remove")) {
    if (await attempt(`${name} was not removed.`, () => ask("DELETE", path(name)))) {
      location.hash = "#/servers";
    }
    await refreshServers();
  }
}

function updateDetail() {
  const server = find(opened.name);
  set(detail, "hidden", opened.name === null);
  set(detail.parentElement, "data-open", opened.name !== null);
  if (opened.name === null) {
    return;
  }
  if (server === undefined) {
    detail.replaceChildren(empty(`There is no server ${opened.name}.`, h("a", { href: "#/servers" }, "All servers")));
    opened.body = null;
    return;
  }
  if (opened.body === null) {
    buildDetail(server);
  }
  const { word, tone } = standing(server, Date.now() - known.servers_at);
  set(part(detail, "pill"), "data-tone", tone);
  say(part(detail, "pill"), word);
  const isUp = ["ok", "busy"].includes(tone);
  set(part(detail, "stop"), "hidden", !isUp);
  set(part(detail, "start"), "hidden", isUp || !server.config.enabled);
  opened.body.update?.(server);
}

function buildDetail(server) {
  const { name } = server.config;
  const tabs = Object.entries(TABS).map(([tab, title]) =>
    h("a", { href: address(name, tab), "aria-current": tab === opened.tab ? "page" : null }, title),
  );
  const bodies = { "": overview, log, edit: (it) => editor(it, (now) => (location.hash = address(now))) };
  opened.body = bodies[opened.tab](server);
  set(detail, "aria-label", name);
  detail.replaceChildren(
    h(
      "div",
      { class: "detail-head" },
      h("a", { class: "back", href: "#/servers", "aria-label": "Close" }, "×"),
      h("h2", {}, name),
      h("span", { class: "pill", "data-part": "pill" }),
    ),
    h(
      "div",
      { class: "actions" },
      button("Restart", "quiet", () => run(name, "restart")),
      button("Stop", "quiet", () => run(name, "stop"), { "data-part": "stop" }),
      button("Start", "quiet", () => run(name, "start"), { "data-part": "start" }),
      button("Remove", "quiet danger-text", () => remove(name)),
    ),
    h("nav", { class: "tabs", "aria-label": `About ${name}` }, ...tabs),
    opened.body.element,
  );
}
