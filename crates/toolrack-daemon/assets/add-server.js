// The dialog that adds servers from what a person pastes.

import { Unreadable, joinWords, readAddition } from "./server-parser.js";
import { ask } from "./api.js";
import { button, h, labelled, say, set, sync } from "./dom.js";
import { faultList } from "./diagnostics.js";
import { note, open } from "./notifications.js";
import { known, refreshServers } from "./store.js";

const EXAMPLE = `npx -y @modelcontextprotocol/server-everything

or a URL, or JSON such as

{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}`;

/** Opens the dialog. `added` gets the name of the first server that was added. */
export function addServer(added) {
  const text = h("textarea", { class: "code", rows: "7", placeholder: EXAMPLE, spellcheck: "false", autofocus: true });
  const name = h("input", {
    type: "text",
    placeholder: "chosen from the command",
    autocomplete: "off",
    spellcheck: "false",
  });
  const preview = h("ul", { class: "preview", "aria-label": "Will be added", hidden: true });
  const notes = h("p", { class: "hint" });
  const faults = faultList("What is wrong");
  const save = button("Add", "primary", () => submit(), { type: "submit" });
  const form = h(
    "form",
    { method: "dialog", class: "stack" },
    h("h2", { id: "add-title" }, "Add a server"),
    labelled("Command line, URL or JSON", text),
    labelled("Name", name),
    preview,
    notes,
    faults.element,
    h(
      "div",
      { class: "actions" },
      button("Cancel", "quiet", () => dialog.close()),
      save,
    ),
  );
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "add-title" }, form);

  function look() {
    const read = tryReading(text.value, name.value.trim());
    const { configs, error } = read;
    const isBlank = text.value.trim() === "";
    faults.show(error && !isBlank ? [{ message: error }] : []);
    set(preview, "hidden", configs.length === 0);
    sync(
      preview,
      configs.map((it, place) => ({ ...it, place })),
      (it) => `${it.place} ${JSON.stringify(it)}`,
      describe,
    );
    say(notes, read.notes.join(" "));
    set(name, "placeholder", configs[0]?.name ?? "chosen from the command");
    set(name, "disabled", configs.length > 1);
    say(save, configs.length > 1 ? `Add ${configs.length}` : "Add");
    return read;
  }

  async function submit() {
    const { configs, error } = look();
    if (error) {
      faults.show([{ message: error }]);
      return;
    }
    const refused = await addAll(configs);
    await refreshServers();
    if (refused === null) {
      dialog.close();
      added(configs[0].name);
    } else {
      faults.show(refused);
    }
  }

  text.addEventListener("input", look);
  name.addEventListener("input", look);
  form.addEventListener("submit", (event) => event.preventDefault());
  open(dialog);
}

function tryReading(text, name) {
  try {
    const { configs, notes } = readAddition(text, name);
    const taken = configs.find((it) => known.servers?.some((other) => other.config.name === it.name));
    const error = taken ? `There is a server ${taken.name} already. Choose another name.` : null;
    return { configs, notes, error };
  } catch (error) {
    if (error instanceof Unreadable) {
      return { configs: [], notes: [], error: error.message };
    }
    throw error;
  }
}

function describe({ name, package: source, transport, config, env_vars }) {
  const words = transport.type === "http" ? [transport.url] : [source.identifier, ...(config?.args ?? [])];
  const variables = Object.keys(env_vars ?? {});
  const more = variables.length > 0 ? h("span", { class: "hint" }, ` with ${variables.join(", ")}`) : null;
  return h("li", {}, h("strong", {}, name ?? "?"), " ", h("code", {}, joinWords(words)), more);
}

/** Adds them in order, and gives the faults of the first that is refused. */
async function addAll(configs) {
  for (const config of configs) {
    try {
      await ask("POST", "/api/servers", config);
      note(`${config.name} was added.`);
    } catch (problem) {
      return problem.errors.map((it) =>
        configs.length > 1 ? { ...it, message: `${config.name}: ${it.message}` } : it,
      );
    }
  }
  return null;
}
