// Overview and log tabs of one server.

import { h, setAttr, setText, syncChildren } from "./dom.js";
import { bytes, clock } from "./format.js";
import { sentence } from "./notifications.js";
import { commandOrUrl, describeStatus } from "./status.js";
import { followLog, store } from "./store.js";

/** Overview tab. A tab is `{ element, update(server) }`. */
export function overviewTab() {
  const problem = h("div", { class: "problem", hidden: true });
  const facts = h("dl", { class: "facts" });
  const tools = h("ul", { class: "chips", "aria-label": "Tools" });
  const title = h("h3", {}, "Tools");
  return {
    element: h("div", { class: "tab" }, problem, facts, title, tools),
    update(server) {
      const { reason, hint } = describeStatus(server, Date.now() - store.servers_at);
      setAttr(problem, "hidden", reason === null && hint === null);
      const lines = [reason, hint].filter(Boolean).map((text) => h("p", {}, sentence(text)));
      problem.replaceChildren(...lines);
      syncChildren(
        facts,
        serverFacts(server),
        ([fact]) => fact,
        ([fact]) => h("div", {}, h("dt", {}, fact), h("dd", {})),
        (element, [, value]) => setText(element.lastElementChild, value),
      );
      const own = (store.tools ?? []).filter((tool) => tool.server === server.config.name);
      setAttr(title, "hidden", own.length === 0);
      syncChildren(
        tools,
        own,
        (tool) => tool.name,
        (tool) =>
          h(
            "li",
            {},
            h("a", { href: `#/tools/${encodeURIComponent(tool.name)}`, title: tool.description ?? "" }, tool.raw_name),
          ),
      );
    },
  };
}

function serverFacts({ config, status }) {
  const filtered = (status.n_tools_total ?? status.n_tools) - status.n_tools;
  const variables = Object.values(config.env_vars ?? {});
  return [
    [config.transport.type === "http" ? "URL" : "Command", commandOrUrl(config)],
    ["Transport", config.transport.type],
    ["Tools", filtered > 0 ? `${status.n_tools} offered, ${filtered} filtered out` : String(status.n_tools)],
    ["Memory", status.memory_bytes ? bytes(status.memory_bytes) : "–"],
    ["Launches", status.launch === null ? "–" : String(status.launch)],
    ["Environment", variables.length === 0 ? "–" : variables.map(({ name }) => name).join(", ")],
    ["ID", config.id],
  ];
}

/** Log tab: the last stderr lines, followed live. */
export function logTab(server) {
  const { name } = server.config;
  const lines = h("ol", { class: "log", tabindex: "0", "aria-label": `Log of ${name}` });
  const placeholder = h(
    "p",
    { class: "hint" },
    "No log output yet. New lines appear here live.",
  );
  followLog(name).catch(() => {});
  return {
    element: h("div", { class: "tab" }, placeholder, lines),
    update() {
      const entries = store.logs.get(name) ?? [];
      setAttr(placeholder, "hidden", entries.length > 0);
      setAttr(lines, "hidden", entries.length === 0);
      const isAtBottom = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
      syncChildren(
        lines,
        entries,
        (entry) => entry.number,
        (entry) => h("li", {}, h("time", {}, clock(entry.time_ms)), " ", h("span", {}, entry.line)),
      );
      if (isAtBottom) {
        lines.scrollTop = lines.scrollHeight;
      }
    },
  };
}
