// Config view: text editor with diagnostics, and conflict handling when the file was changed elsewhere.

import { request } from "./api.js";
import { diagnosticList } from "./diagnostics.js";
import { diffLines } from "./diff.js";
import { button, h, part, setAttr, setText, syncChildren } from "./dom.js";
import { attempt, notify, sentence } from "./notifications.js";
import { refreshServers, store } from "./store.js";

/** Delay between typing and checking. */
const CHECK_DELAY_MS = 250;

let main = null;
let text = null;
let gutter = null;
let diagnostics = null;
let save = null;
let timer = null;
/** The file as loaded: `{ path, text, generation }`. It and the edited text survive a change of view. */
let file = null;
let draft = null;
/** Number of the latest check; responses to older ones are ignored. */
let checkNumber = 0;

export const config = {
  open(container) {
    main = container;
    text = h("textarea", {
      class: "code file",
      spellcheck: "false",
      autocomplete: "off",
      wrap: "off",
      "aria-label": "Config file",
      "data-search": true,
    });
    gutter = h("div", { class: "gutter", "aria-hidden": "true" });
    diagnostics = diagnosticList("Errors and warnings");
    save = button("Save", "primary", () => saveConfig(file.generation), { disabled: true });
    const reload = button("Reload", "quiet", () => load());
    main.append(
      h(
        "section",
        { class: "pane config" },
        h(
          "div",
          { class: "head" },
          h("h1", {}, "Config"),
          h("p", { class: "summary" }, h("code", { "data-part": "path" })),
          h("span", { class: "hint", role: "status", "data-part": "state" }),
          reload,
          save,
        ),
        h("div", { "data-part": "conflict" }),
        h("div", { class: "editor" }, gutter, text),
        diagnostics.element,
      ),
    );
    text.addEventListener("input", handleInput);
    text.addEventListener("scroll", () => (gutter.scrollTop = text.scrollTop));
    text.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && (event.key === "Enter" || event.key === "s")) {
        event.preventDefault();
        save.click();
      }
    });
    if (draft !== null && file !== null && draft !== file.text) {
      show(draft);
    } else {
      load();
    }
  },

  navigate() {},

  update() {
    const isRejected = store.rejected !== null && !isEdited();
    setAttr(main.querySelector(".pane"), "data-rejected", isRejected);
  },

  close() {
    clearTimeout(timer);
  },
};

const isEdited = () => file !== null && text.value !== file.text;

async function load() {
  await attempt("Could not load the config.", async () => {
    file = await request("GET", "/api/config");
    part(main, "conflict").replaceChildren();
    show(file.text);
  });
}

function show(content) {
  text.value = content;
  setText(part(main, "path"), file.path);
  draft = content;
  check();
}

function handleInput() {
  draft = text.value;
  setAttr(save, "disabled", true);
  updateGutter([]);
  clearTimeout(timer);
  timer = setTimeout(check, CHECK_DELAY_MS);
}

async function check() {
  checkNumber += 1;
  const own = checkNumber;
  let found = [];
  try {
    found = (await request("POST", "/api/config/check", { text: text.value })).faults;
  } catch (problem) {
    found = problem.errors.map((error) => ({ ...error, severity: "error" }));
  }
  if (own !== checkNumber || !main.contains(text)) {
    return;
  }
  showDiagnostics(found);
}

function showDiagnostics(found) {
  const errors = found.filter(({ severity }) => severity === "error");
  updateGutter(found);
  diagnostics.show(found, jump);
  setAttr(save, "disabled", errors.length > 0 || !isEdited());
  setAttr(text, "aria-invalid", errors.length > 0 ? "true" : null);
  const state =
    errors.length > 0
      ? `${errors.length === 1 ? "1 error" : `${errors.length} errors`}; the last valid config stays active`
      : isEdited()
        ? "Valid, not saved"
        : "Saved and active";
  setText(part(main, "state"), state);
}

/** Updates the line numbers and marks lines with diagnostics. */
function updateGutter(found) {
  const byLine = new Map();
  for (const diagnostic of found) {
    if (diagnostic.line && byLine.get(diagnostic.line)?.severity !== "error") {
      byLine.set(diagnostic.line, diagnostic);
    }
  }
  const lines = text.value.split("\n").map((_line, index) => ({
    line: index + 1,
    diagnostic: byLine.get(index + 1),
  }));
  syncChildren(
    gutter,
    lines,
    ({ line }) => line,
    ({ line }) => h("span", {}, String(line)),
    (element, { diagnostic }) => {
      setAttr(element, "data-severity", diagnostic?.severity);
      setAttr(element, "title", diagnostic ? sentence(diagnostic.message) : null);
    },
  );
  gutter.scrollTop = text.scrollTop;
}

function jump({ line, column }) {
  const before = text.value
    .split("\n")
    .slice(0, line - 1)
    .join("\n");
  const start = before.length + (line > 1 ? 1 : 0) + (column ?? 1) - 1;
  text.focus();
  text.setSelectionRange(start, start);
  const height = parseFloat(getComputedStyle(text).lineHeight);
  text.scrollTop = Math.max(0, (line - 4) * height);
}

async function saveConfig(generation) {
  if (generation === undefined || save.disabled) {
    return;
  }
  const content = text.value;
  try {
    const saved = await request("PUT", "/api/config", { text: content, generation });
    part(main, "conflict").replaceChildren();
    file = { ...file, text: content, generation: saved.generation };
    notify("Config saved.");
    await Promise.all([check(), refreshServers()]);
  } catch (problem) {
    if (problem.status === 409) {
      await showConflict();
    } else {
      diagnostics.show(problem.errors.map((error) => ({ severity: "error", ...error })));
    }
  }
}

/** The file was changed elsewhere: shows the diff and lets the user decide. */
async function showConflict() {
  const onDisk = await request("GET", "/api/config");
  const changes = diffLines(onDisk.text, text.value);
  const lines = changes.map(({ sign, line }) =>
    h("span", { class: sign === "+" ? "mine" : sign === "-" ? "theirs" : null }, `${sign} ${line}\n`),
  );
  const box = part(main, "conflict");
  box.replaceChildren(
    h(
      "div",
      { class: "problem", role: "alert" },
      h("p", {}, h("strong", {}, "The file has changed on disk since you opened it.")),
      h("p", { class: "hint" }, "− lines are on disk, + lines are yours."),
      h("pre", { class: "output diff", tabindex: "0" }, ...lines),
      h(
        "div",
        { class: "actions" },
        button("Reload from disk", "quiet", () => {
          file = onDisk;
          box.replaceChildren();
          show(onDisk.text);
        }),
        button("Keep editing", "quiet", () => {
          file = onDisk;
          box.replaceChildren();
          return check();
        }),
        button("Overwrite", "danger", () => {
          file = onDisk;
          return saveConfig(onDisk.generation);
        }),
      ),
    ),
  );
}
