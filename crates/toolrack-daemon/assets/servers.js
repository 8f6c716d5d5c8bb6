// Servers view: status and suggested action of each server, and details of one of them.

import { addServer } from "./add-server.js";
import { request } from "./api.js";
import { button, emptyState, h, part, setAttr, setText, syncChildren } from "./dom.js";
import { bytes, count } from "./format.js";
import { attempt, confirm, notify } from "./notifications.js";
import { logTab, overviewTab } from "./server-detail.js";
import { serverEditor } from "./server-editor.js";
import { commandOrUrl, describeStatus } from "./status.js";
import { refreshServers, store } from "./store.js";

const TABS = { "": "Overview", log: "Log", edit: "Edit" };
/** Maximum age of the memory figures. */
const MEMORY_MAX_AGE_MS = 5000;
const PAST_TENSE = { restart: "restarted", start: "started", stop: "stopped", enable: "enabled", disable: "disabled" };

let main = null;
let list = null;
let detail = null;
let timer = null;
/** Name, tab and tab content of the selected server. */
let selected = { name: null, tab: "", body: null };

const apiPath = (name, verb) => `/api/servers/${encodeURIComponent(name)}${verb ? `/${verb}` : ""}`;
const viewUrl = (name, tab) => `#/servers/${encodeURIComponent(name)}${tab ? `/${tab}` : ""}`;
const find = (name) => store.servers?.find((server) => server.config.name === name);

export const servers = {
  open(container) {
    main = container;
    list = h("ul", { class: "rows servers", "data-list": true, "aria-label": "Servers" });
    detail = h("section", { class: "detail", hidden: true });
    const head = h(
      "div",
      { class: "head" },
      h("h1", {}, "Servers"),
      h("p", { class: "summary", "data-part": "summary" }),
    );
    head.append(button("Add server", "primary", () => addServer((name) => (location.hash = viewUrl(name)))));
    main.append(h("div", { class: "split" }, h("section", { class: "pane" }, head, list), detail));
    // Retry countdowns and memory change without events.
    timer = setInterval(tick, 1000);
  },

  navigate([name = null, tab = ""]) {
    const isSame = selected.name === name && selected.tab === tab;
    selected = isSame ? selected : { name, tab: TABS[tab] ? tab : "", body: null };
    if (!isSame) {
      detail.replaceChildren();
    }
    update();
  },

  update,

  close() {
    clearInterval(timer);
    selected = { name: null, tab: "", body: null };
  },
};

function tick() {
  const isFresh = Date.now() - store.servers_at < MEMORY_MAX_AGE_MS || document.hidden;
  if (!isFresh && store.connection === "live") {
    refreshServers();
  } else if (store.servers?.some(({ status }) => status.retry_in_ms)) {
    update();
  }
}

function update() {
  if (store.servers === null) {
    return;
  }
  const running = store.servers.filter(({ status }) => status.phase === "connected").length;
  setText(part(main, "summary"), store.servers.length === 0 ? "" : `${running} of ${store.servers.length} running`);
  syncChildren(list, store.servers, ({ config }) => config.id, makeRow, updateRow);
  const placeholder = part(main, "empty");
  if (store.servers.length === 0 && placeholder === null) {
    const advice = "Add a server from its command line, its URL, or the JSON config of another tool.";
    const created = emptyState("No servers yet.", h("p", {}, advice));
    created.dataset.part = "empty";
    list.after(created);
  } else if (store.servers.length > 0) {
    placeholder?.remove();
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
      { class: "server-identity" },
      h("a", { class: "name", "data-item": true, "data-part": "name" }),
      h("span", { class: "command", "data-part": "command" }),
    ),
    h(
      "div",
      { class: "state" },
      h("span", { "data-part": "label", class: "label" }),
      h("span", { class: "reason", "data-part": "reason" }),
    ),
    h("span", { class: "metric", "data-part": "tools" }),
    h("span", { class: "metric", "data-part": "memory", title: "Memory of all processes of the server" }),
    h(
      "div",
      { class: "row-actions" },
      button("", "quiet", () => runAction(row.dataset.name, row.dataset.verb), { "data-part": "action" }),
      button("", "switch", () => toggle(row.dataset.name), { role: "switch", "data-part": "switch" }),
    ),
  );
  return row;
}

function updateRow(row, server) {
  const { config, status } = server;
  const { label, tone, reason, hint, action } = describeStatus(server, Date.now() - store.servers_at);
  row.dataset.name = config.name;
  row.dataset.verb = action.verb;
  setAttr(row, "data-tone", tone);
  setAttr(row, "data-open", selected.name === config.name);
  setText(part(row, "name"), config.name);
  setAttr(part(row, "name"), "href", viewUrl(config.name));
  setAttr(part(row, "name"), "aria-current", selected.name === config.name ? "true" : null);
  setText(part(row, "command"), commandOrUrl(config));
  setAttr(part(row, "command"), "title", commandOrUrl(config));
  setText(part(row, "label"), label);
  setText(part(row, "reason"), reason ?? "");
  setAttr(part(row, "reason"), "title", [reason, hint].filter(Boolean).join("\n"));
  setText(part(row, "tools"), status.n_tools > 0 || tone === "ok" ? count(status.n_tools, "tool") : "");
  setText(part(row, "memory"), status.memory_bytes ? bytes(status.memory_bytes) : "");
  setText(part(row, "action"), action.label);
  setAttr(part(row, "action"), "aria-label", `${action.label}: ${config.name}`);
  setAttr(part(row, "switch"), "aria-checked", String(config.enabled));
  setAttr(part(row, "switch"), "aria-label", `Enabled: ${config.name}`);
}

async function toggle(name) {
  await run(name, find(name)?.config.enabled ? "disable" : "enable");
}

async function run(name, verb) {
  const succeeded = await attempt(`${name} could not be ${PAST_TENSE[verb]}.`, () =>
    request("POST", apiPath(name, verb)),
  );
  await refreshServers();
  if (succeeded && verb === "restart") {
    notify(`${name} restarted.`);
  }
}

async function runAction(name, verb) {
  if (verb === "open") {
    location.hash = `#/tools/?server=${encodeURIComponent(name)}`;
  } else if (verb === "login") {
    location.hash = viewUrl(name);
  } else {
    await run(name, verb);
  }
}

async function remove(name) {
  const details = "This removes it from the config file and stops its processes.";
  if (await confirm(`Remove ${name}?`, details, "Remove")) {
    if (await attempt(`${name} could not be removed.`, () => request("DELETE", apiPath(name)))) {
      location.hash = "#/servers";
    }
    await refreshServers();
  }
}

function updateDetail() {
  const server = find(selected.name);
  setAttr(detail, "hidden", selected.name === null);
  setAttr(detail.parentElement, "data-open", selected.name !== null);
  if (selected.name === null) {
    return;
  }
  if (server === undefined) {
    detail.replaceChildren(emptyState(`No server named ${selected.name}.`, h("a", { href: "#/servers" }, "All servers")));
    selected.body = null;
    return;
  }
  if (selected.body === null) {
    buildDetail(server);
  }
  const { label, tone } = describeStatus(server, Date.now() - store.servers_at);
  setAttr(part(detail, "pill"), "data-tone", tone);
  setText(part(detail, "pill"), label);
  const isActive = ["ok", "busy"].includes(tone);
  setAttr(part(detail, "stop"), "hidden", !isActive);
  setAttr(part(detail, "start"), "hidden", isActive || !server.config.enabled);
  selected.body.update?.(server);
}

function buildDetail(server) {
  const { name } = server.config;
  const tabs = Object.entries(TABS).map(([tab, title]) =>
    h("a", { href: viewUrl(name, tab), "aria-current": tab === selected.tab ? "page" : null }, title),
  );
  const bodies = {
    "": overviewTab,
    log: logTab,
    edit: (edited) => serverEditor(edited, (newName) => (location.hash = viewUrl(newName))),
  };
  selected.body = bodies[selected.tab](server);
  setAttr(detail, "aria-label", name);
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
    h("nav", { class: "tabs", "aria-label": `Details of ${name}` }, ...tabs),
    selected.body.element,
  );
}
