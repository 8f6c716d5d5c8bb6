// The page: which view is shown, what the header says, and the keys.

import { hasKey, login, logout } from "./api.js";
import { calls } from "./calls.js";
import { config } from "./config.js";
import { empty, h, say, set } from "./dom.js";
import { complain, open } from "./notifications.js";
import { servers } from "./servers.js";
import { follow, known, watch } from "./store.js";
import { tools } from "./tools.js";

/** A view has `open(main)`, `go(rest)` for what stands behind its name in the address, `update()` and `close()`. */
const VIEWS = { servers, tools, calls, config };
const THEMES = { auto: "◐", light: "☀", dark: "☾" };
const KEYS = [
  ["1 – 4", "Servers, tools, calls, config"],
  ["/", "Search"],
  ["↑ ↓", "Move through a list"],
  ["Esc", "Close what is open"],
  ["Ctrl Enter", "Run the tool, save the config"],
  ["t", "Change the theme"],
  ["?", "This list"],
];

const main = document.getElementById("main");
let shown = null;

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const view = VIEWS[name] ? name : "servers";
  if (shown !== view) {
    VIEWS[shown]?.close();
    shown = view;
    main.replaceChildren();
    VIEWS[view].open(main);
    document.title = `${view.charAt(0).toUpperCase()}${view.slice(1)} · Toolrack`;
    for (const link of document.querySelectorAll("#views a")) {
      set(link, "aria-current", link.dataset.view === view ? "page" : null);
    }
  }
  VIEWS[view].go(rest);
}

function update() {
  if (known.live === "locked") {
    lock();
    return;
  }
  const running = known.calls.filter((it) => it.outcome === null).length;
  say(document.getElementById("n-servers"), known.servers === null ? "" : String(known.servers.length));
  say(document.getElementById("n-tools"), known.tools === null ? "" : String(known.tools.length));
  say(document.getElementById("n-calls"), running === 0 ? "" : String(running));
  say(document.getElementById("n-config"), known.rejected === null ? "" : "!");
  const live = document.getElementById("live");
  set(live, "data-state", known.live);
  say(live, { connecting: "Connecting", live: "Live", lost: "Reconnecting" }[known.live]);
  VIEWS[shown]?.update();
}

/** Without a key there is nothing to show but how to get one. */
function lock() {
  VIEWS[shown]?.close();
  shown = "locked";
  set(document.getElementById("views"), "hidden", true);
  set(document.getElementById("live"), "data-state", "locked");
  say(document.getElementById("live"), "Locked");
  main.replaceChildren(
    h("h1", { class: "unseen" }, "Toolrack"),
    empty(
      "This page has no key.",
      h("p", {}, "A link opens it once, and only for a minute. Get a new one with:"),
      h("pre", {}, "toolrack dashboard"),
    ),
  );
}

function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

function choose(next) {
  if (next === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("toolrack.theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("toolrack.theme", next);
  }
  const control = document.getElementById("theme");
  say(control, THEMES[next]);
  set(control, "aria-label", `Theme: ${next}`);
  set(control, "title", `Theme: ${next}`);
}

function changeTheme() {
  const names = Object.keys(THEMES);
  choose(names[(names.indexOf(theme()) + 1) % names.length]);
}

function showKeys() {
  const rows = KEYS.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)));
  const close = h("button", { type: "submit", class: "quiet" }, "Close");
  const body = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys" }, ...rows),
  );
  body.append(h("div", { class: "actions" }, close));
  open(h("dialog", { "aria-labelledby": "keys-title" }, body));
}

function press(event) {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]") !== null;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) {
    return;
  }
  if (event.key === "Escape" && shown !== "locked") {
    if (isTyping) {
      event.target.blur();
    } else if (location.hash.split("/").length > 2) {
      location.hash = `#/${shown}`;
    }
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !isTyping) {
    move(event);
  } else if (!isTyping) {
    shortcut(event);
  }
}

/** Moves the focus within the list that has it. */
function move(event) {
  const list = event.target.closest("[data-list]");
  if (list === null) {
    return;
  }
  const links = [...list.querySelectorAll("[data-item]")];
  const here = links.findIndex((it) => it === event.target || it.contains(event.target));
  const next = links[here + (event.key === "ArrowDown" ? 1 : -1)];
  if (next !== undefined) {
    event.preventDefault();
    next.focus();
  }
}

function shortcut(event) {
  const number = "1234".indexOf(event.key);
  if (number >= 0) {
    location.hash = `#/${Object.keys(VIEWS)[number]}`;
  } else if (event.key === "/") {
    event.preventDefault();
    main.querySelector("[data-search]")?.focus();
  } else if (event.key === "?") {
    showKeys();
  } else if (event.key === "t") {
    changeTheme();
  }
}

async function begin() {
  choose(theme());
  document.getElementById("theme").addEventListener("click", changeTheme);
  document.getElementById("keys").addEventListener("click", showKeys);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  document.addEventListener("keydown", press);
  // Another link in the same tab changes only what stands behind the `#`.
  addEventListener("hashchange", () => (/^#(code|token)=/.test(location.hash) ? location.reload() : null));
  try {
    await login();
  } catch (problem) {
    logout();
    complain("The link does not open the page.", problem);
  }
  if (!hasKey()) {
    lock();
    return;
  }
  addEventListener("hashchange", route);
  watch(update);
  route();
  await follow();
}

begin();
