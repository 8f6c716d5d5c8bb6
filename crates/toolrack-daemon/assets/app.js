// Application shell: routing between views, header and keyboard shortcuts.

import { hasToken, login, logout } from "./api.js";
import { calls } from "./calls.js";
import { config } from "./config.js";
import { emptyState, h, setAttr, setText } from "./dom.js";
import { notifyError, openDialog } from "./notifications.js";
import { servers } from "./servers.js";
import { onChange, start, store } from "./store.js";
import { tools } from "./tools.js";

/** A view has `open(main)`, `navigate(path)` for the rest of the URL path, `update()` and `close()`. */
const VIEWS = { servers, tools, calls, config };
const THEMES = { auto: "◐", light: "☀", dark: "☾" };
const SHORTCUTS = [
  ["1 – 4", "Go to servers, tools, calls, config"],
  ["/", "Search"],
  ["↑ ↓", "Move in a list"],
  ["Esc", "Close"],
  ["Ctrl Enter", "Run the tool or save the config"],
  ["t", "Change theme"],
  ["?", "Show keyboard shortcuts"],
];

const main = document.getElementById("main");
let current = null;

function route() {
  const [name, ...path] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const view = VIEWS[name] ? name : "servers";
  if (current !== view) {
    VIEWS[current]?.close();
    current = view;
    main.replaceChildren();
    VIEWS[view].open(main);
    document.title = `${view.charAt(0).toUpperCase()}${view.slice(1)} · Toolrack`;
    for (const link of document.querySelectorAll("#views a")) {
      setAttr(link, "aria-current", link.dataset.view === view ? "page" : null);
    }
  }
  VIEWS[view].navigate(path);
}

function update() {
  if (store.connection === "locked") {
    showLocked();
    return;
  }
  const running = store.calls.filter((call) => call.outcome === null).length;
  setText(document.getElementById("n-servers"), store.servers === null ? "" : String(store.servers.length));
  setText(document.getElementById("n-tools"), store.tools === null ? "" : String(store.tools.length));
  setText(document.getElementById("n-calls"), running === 0 ? "" : String(running));
  setText(document.getElementById("n-config"), store.rejected === null ? "" : "!");
  const indicator = document.getElementById("live");
  setAttr(indicator, "data-state", store.connection);
  setText(indicator, { connecting: "Connecting", live: "Live", lost: "Reconnecting" }[store.connection]);
  VIEWS[current]?.update();
}

/** Shows how to log in. */
function showLocked() {
  VIEWS[current]?.close();
  current = "locked";
  setAttr(document.getElementById("views"), "hidden", true);
  setAttr(document.getElementById("live"), "data-state", "locked");
  setText(document.getElementById("live"), "Not logged in");
  main.replaceChildren(
    h("h1", { class: "visually-hidden" }, "Toolrack"),
    emptyState(
      "You are not logged in.",
      h("p", {}, "Login links are single-use and valid for 60 seconds. Open the dashboard again with:"),
      h("pre", {}, "toolrack dashboard"),
    ),
  );
}

function currentTheme() {
  return document.documentElement.dataset.theme ?? "auto";
}

function setTheme(next) {
  if (next === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("toolrack.theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("toolrack.theme", next);
  }
  const button = document.getElementById("theme");
  setText(button, THEMES[next]);
  setAttr(button, "aria-label", `Theme: ${next}`);
  setAttr(button, "title", `Theme: ${next}`);
}

function cycleTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(currentTheme()) + 1) % names.length]);
}

function showShortcuts() {
  const rows = SHORTCUTS.map(([key, action]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, action)));
  const close = h("button", { type: "submit", class: "quiet" }, "Close");
  const body = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "keys-title" }, "Keyboard shortcuts"),
    h("dl", { class: "keys" }, ...rows),
  );
  body.append(h("div", { class: "actions" }, close));
  openDialog(h("dialog", { "aria-labelledby": "keys-title" }, body));
}

function handleKey(event) {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]") !== null;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) {
    return;
  }
  if (event.key === "Escape" && current !== "locked") {
    if (isTyping) {
      event.target.blur();
    } else if (location.hash.split("/").length > 2) {
      location.hash = `#/${current}`;
    }
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !isTyping) {
    moveFocus(event);
  } else if (!isTyping) {
    handleShortcut(event);
  }
}

/** Moves the focus within the focused list. */
function moveFocus(event) {
  const list = event.target.closest("[data-list]");
  if (list === null) {
    return;
  }
  const links = [...list.querySelectorAll("[data-item]")];
  const index = links.findIndex((link) => link === event.target || link.contains(event.target));
  const next = links[index + (event.key === "ArrowDown" ? 1 : -1)];
  if (next !== undefined) {
    event.preventDefault();
    next.focus();
  }
}

function handleShortcut(event) {
  const index = "1234".indexOf(event.key);
  if (index >= 0) {
    location.hash = `#/${Object.keys(VIEWS)[index]}`;
  } else if (event.key === "/") {
    event.preventDefault();
    main.querySelector("[data-search]")?.focus();
  } else if (event.key === "?") {
    showShortcuts();
  } else if (event.key === "t") {
    cycleTheme();
  }
}

async function run() {
  setTheme(currentTheme());
  document.getElementById("theme").addEventListener("click", cycleTheme);
  document.getElementById("keys").addEventListener("click", showShortcuts);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  document.addEventListener("keydown", handleKey);
  // A new login link in the same tab changes only the fragment, which does not reload the page.
  addEventListener("hashchange", () => (/^#(code|token)=/.test(location.hash) ? location.reload() : null));
  try {
    await login();
  } catch (problem) {
    logout();
    notifyError("Login failed.", problem);
  }
  if (!hasToken()) {
    showLocked();
    return;
  }
  addEventListener("hashchange", route);
  onChange(update);
  route();
  await start();
}

run();
