// The tabs of one server: what is known of it, and what it writes.

import { h, say, set, sync } from "./dom.js";
import { bytes, clock } from "./format.js";
import { sentence } from "./notifications.js";
import { origin, standing } from "./status.js";
import { followLog, known } from "./store.js";

/** A tab is `{ element, update(server) }`. */
export function overview() {
  const problem = h("div", { class: "problem", hidden: true });
  const facts = h("dl", { class: "facts" });
  const tools = h("ul", { class: "chips", "aria-label": "Tools" });
  const title = h("h3", {}, "Tools");
  return {
    element: h("div", { class: "tab" }, problem, facts, title, tools),
    update(server) {
      const { reason, hint } = standing(server, Date.now() - known.servers_at);
      set(problem, "hidden", reason === null && hint === null);
      const lines = [reason, hint].filter(Boolean).map((it) => h("p", {}, sentence(it)));
      problem.replaceChildren(...lines);
      sync(
        facts,
        factsOf(server),
        ([fact]) => fact,
        ([fact]) => h("div", {}, h("dt", {}, fact), h("dd", {})),
        (element, [, value]) => say(element.lastElementChild, value),
      );
      const own = (known.tools ?? []).filter((it) => it.server === server.config.name);
      set(title, "hidden", own.length === 0);
      sync(
        tools,
        own,
        (it) => it.name,
        (it) =>
          h(
            "li",
            {},
            h("a", { href: `#/tools/${encodeURIComponent(it.name)}`, title: it.description ?? "" }, it.raw_name),
          ),
      );
    },
  };
}

function factsOf({ config, status }) {
  const hidden = (status.n_tools_total ?? status.n_tools) - status.n_tools;
  const variables = Object.values(config.env_vars ?? {});
  const facts = [
    [config.transport.type === "http" ? "URL" : "Command", origin(config)],
    ["Transport", config.transport.type],
    ["Tools", hidden > 0 ? `${status.n_tools} offered, ${hidden} filtered` : String(status.n_tools)],
    ["Memory", status.memory_bytes ? bytes(status.memory_bytes) : "–"],
    ["Launches", status.launch === null ? "–" : String(status.launch)],
    ["Environment", variables.length === 0 ? "–" : variables.map((it) => it.name).join(", ")],
    ["Id", config.id],
  ];
  return facts;
}

/** The last lines of the error output, and those that come. */
export function log(server) {
  const { name } = server.config;
  const lines = h("ol", { class: "log", tabindex: "0", "aria-label": `Error output of ${name}` });
  const none = h(
    "p",
    { class: "hint" },
    "Nothing was written to the error output yet. New lines appear by themselves.",
  );
  followLog(name).catch(() => {});
  return {
    element: h("div", { class: "tab" }, none, lines),
    update() {
      const written = known.logs.get(name) ?? [];
      set(none, "hidden", written.length > 0);
      set(lines, "hidden", written.length === 0);
      const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
      sync(
        lines,
        written,
        (it) => it.number,
        (it) => h("li", {}, h("time", {}, clock(it.time_ms)), " ", h("span", {}, it.line)),
      );
      if (isAtEnd) {
        lines.scrollTop = lines.scrollHeight;
      }
    },
  };
}
