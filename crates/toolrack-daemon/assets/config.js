// The view of the config file: its text, what is wrong with it and where, and saving without losing anybody's work.

import { ask } from "./api.js";
import { button, h, part, say, set, sync } from "./dom.js";
import { faultList } from "./diagnostics.js";
import { differences } from "./diff.js";
import { attempt, note, sentence } from "./notifications.js";
import { known, refreshServers } from "./store.js";

const PAUSE_MS = 250;

let main = null;
let text = null;
let gutter = null;
let faults = null;
let save = null;
let timer = null;
/** The file as it was read: `{ path, text, generation }`. Survives a look at another view, as does what was typed. */
let file = null;
let typed = null;
/** How many checks were begun; an answer to an older one says nothing. */
let n_checks = 0;

export const config = {
  open(where) {
    main = where;
    text = h("textarea", {
      class: "code file",
      spellcheck: "false",
      autocomplete: "off",
      wrap: "off",
      "aria-label": "Config file",
      "data-search": true,
    });
    gutter = h("div", { class: "gutter", "aria-hidden": "true" });
    faults = faultList("Faults of the config");
    save = button("Save", "primary", () => store(file.generation), { disabled: true });
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
          h("span", { class: "hint", role: "status", "data-part": "verdict" }),
          reload,
          save,
        ),
        h("div", { "data-part": "conflict" }),
        h("div", { class: "sheet" }, gutter, text),
        faults.element,
      ),
    );
    text.addEventListener("input", edited);
    text.addEventListener("scroll", () => (gutter.scrollTop = text.scrollTop));
    text.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && (event.key === "Enter" || event.key === "s")) {
        event.preventDefault();
        save.click();
      }
    });
    if (typed !== null && file !== null && typed !== file.text) {
      show(typed);
    } else {
      load();
    }
  },

  go() {},

  update() {
    const isOld = known.rejected !== null && !isEdited();
    set(main.querySelector(".pane"), "data-rejected", isOld);
  },

  close() {
    clearTimeout(timer);
  },
};

const isEdited = () => file !== null && text.value !== file.text;

async function load() {
  await attempt("The config was not read.", async () => {
    file = await ask("GET", "/api/config");
    part(main, "conflict").replaceChildren();
    show(file.text);
  });
}

function show(content) {
  text.value = content;
  say(part(main, "path"), file.path);
  typed = content;
  check();
}

function edited() {
  typed = text.value;
  set(save, "disabled", true);
  number([]);
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE_MS);
}

async function check() {
  n_checks += 1;
  const own = n_checks;
  let found = [];
  try {
    found = (await ask("POST", "/api/config/check", { text: text.value })).faults;
  } catch (problem) {
    found = problem.errors.map((it) => ({ ...it, severity: "error" }));
  }
  if (own !== n_checks || !main.contains(text)) {
    return;
  }
  mark(found);
}

function mark(found) {
  const errors = found.filter((it) => it.severity === "error");
  number(found);
  faults.show(found, jump);
  set(save, "disabled", errors.length > 0 || !isEdited());
  set(text, "aria-invalid", errors.length > 0 ? "true" : null);
  const verdict =
    errors.length > 0
      ? `${errors.length === 1 ? "1 fault" : `${errors.length} faults`}; the last sound config stays in use`
      : isEdited()
        ? "Sound, not saved"
        : "Saved and in use";
  say(part(main, "verdict"), verdict);
}

/** Line numbers, and marks at those that have a fault. */
function number(found) {
  const at = new Map();
  for (const fault of found) {
    if (fault.line && at.get(fault.line)?.severity !== "error") {
      at.set(fault.line, fault);
    }
  }
  const lines = text.value.split("\n").map((_line, place) => ({ line: place + 1, fault: at.get(place + 1) }));
  sync(
    gutter,
    lines,
    (it) => it.line,
    (it) => h("span", {}, String(it.line)),
    (element, { fault }) => {
      set(element, "data-fault", fault?.severity);
      set(element, "title", fault ? sentence(fault.message) : null);
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

async function store(generation) {
  if (generation === undefined || save.disabled) {
    return;
  }
  const content = text.value;
  try {
    const saved = await ask("PUT", "/api/config", { text: content, generation });
    part(main, "conflict").replaceChildren();
    file = { ...file, text: content, generation: saved.generation };
    note("The config was saved.");
    await Promise.all([check(), refreshServers()]);
  } catch (problem) {
    if (problem.status === 409) {
      await conflict();
    } else {
      faults.show(problem.errors.map((it) => ({ severity: "error", ...it })));
    }
  }
}

/** Somebody else has changed the file: both texts are shown, and a person decides. */
async function conflict() {
  const theirs = await ask("GET", "/api/config");
  const changes = differences(theirs.text, text.value);
  const lines = changes.map(({ sign, line }) =>
    h("span", { class: sign === "+" ? "mine" : sign === "-" ? "theirs" : null }, `${sign} ${line}\n`),
  );
  const box = part(main, "conflict");
  box.replaceChildren(
    h(
      "div",
      { class: "problem", role: "alert" },
      h("p", {}, h("strong", {}, "The file was changed by somebody else since it was read here.")),
      h("p", { class: "hint" }, "Lines with − are in the file now, lines with + are yours."),
      h("pre", { class: "output diff", tabindex: "0" }, ...lines),
      h(
        "div",
        { class: "actions" },
        button("Take the file", "quiet", () => {
          file = theirs;
          box.replaceChildren();
          show(theirs.text);
        }),
        button("Keep editing mine", "quiet", () => {
          file = theirs;
          box.replaceChildren();
          return check();
        }),
        button("Save mine over it", "danger", () => {
          file = theirs;
          return store(theirs.generation);
        }),
      ),
    ),
  );
}
