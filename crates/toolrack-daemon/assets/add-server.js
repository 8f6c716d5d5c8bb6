// "Add server" dialog.

import { request } from "./api.js";
import { diagnosticList } from "./diagnostics.js";
import { button, h, labelledControl, setAttr, setText, syncChildren } from "./dom.js";
import { notify, openDialog } from "./notifications.js";
import { ParseError, joinWords, parseServers } from "./server-parser.js";
import { refreshServers, store } from "./store.js";

const EXAMPLE = `npx -y @modelcontextprotocol/server-everything

or a URL, or JSON such as

{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}`;

/** Opens the dialog. `onAdded` gets the name of the first added server. */
export function addServer(onAdded) {
  const text = h("textarea", { class: "code", rows: "7", placeholder: EXAMPLE, spellcheck: "false", autofocus: true });
  const name = h("input", {
    type: "text",
    placeholder: "derived from the command",
    autocomplete: "off",
    spellcheck: "false",
  });
  const preview = h("ul", { class: "preview", "aria-label": "Preview", hidden: true });
  const notes = h("p", { class: "hint" });
  const diagnostics = diagnosticList("Errors");
  const save = button("Add", "primary", () => submit(), { type: "submit" });
  const form = h(
    "form",
    { method: "dialog", class: "stack" },
    h("h2", { id: "add-title" }, "Add server"),
    labelledControl("Command line, URL or JSON", text),
    labelledControl("Name", name),
    preview,
    notes,
    diagnostics.element,
    h(
      "div",
      { class: "actions" },
      button("Cancel", "quiet", () => dialog.close()),
      save,
    ),
  );
  const dialog = h("dialog", { class: "wide", "aria-labelledby": "add-title" }, form);

  function updatePreview() {
    const parsed = tryParse(text.value, name.value.trim());
    const { configs, error } = parsed;
    const isBlank = text.value.trim() === "";
    diagnostics.show(error && !isBlank ? [{ message: error }] : []);
    setAttr(preview, "hidden", configs.length === 0);
    syncChildren(
      preview,
      configs.map((config, index) => ({ ...config, index })),
      (config) => `${config.index} ${JSON.stringify(config)}`,
      previewItem,
    );
    setText(notes, parsed.notes.join(" "));
    setAttr(name, "placeholder", configs[0]?.name ?? "derived from the command");
    setAttr(name, "disabled", configs.length > 1);
    setText(save, configs.length > 1 ? `Add ${configs.length}` : "Add");
    return parsed;
  }

  async function submit() {
    const { configs, error } = updatePreview();
    if (error) {
      diagnostics.show([{ message: error }]);
      return;
    }
    const errors = await addAll(configs);
    await refreshServers();
    if (errors === null) {
      dialog.close();
      onAdded(configs[0].name);
    } else {
      diagnostics.show(errors);
    }
  }

  text.addEventListener("input", updatePreview);
  name.addEventListener("input", updatePreview);
  form.addEventListener("submit", (event) => event.preventDefault());
  openDialog(dialog);
}

function tryParse(text, name) {
  try {
    const { configs, notes } = parseServers(text, name);
    const existing = configs.find(({ name: added }) => store.servers?.some((server) => server.config.name === added));
    const error = existing ? `A server named ${existing.name} already exists. Choose another name.` : null;
    return { configs, notes, error };
  } catch (error) {
    if (error instanceof ParseError) {
      return { configs: [], notes: [], error: error.message };
    }
    throw error;
  }
}

function previewItem({ name, package: source, transport, config, env_vars }) {
  const words = transport.type === "http" ? [transport.url] : [source.identifier, ...(config?.args ?? [])];
  const variables = Object.keys(env_vars ?? {});
  const more = variables.length > 0 ? h("span", { class: "hint" }, ` with ${variables.join(", ")}`) : null;
  return h("li", {}, h("strong", {}, name ?? "?"), " ", h("code", {}, joinWords(words)), more);
}

/** Adds the servers in order. Returns the errors of the first one that fails, or `null`. */
async function addAll(configs) {
  for (const config of configs) {
    try {
      await request("POST", "/api/servers", config);
      notify(`${config.name} added.`);
    } catch (problem) {
      return problem.errors.map((error) =>
        configs.length > 1 ? { ...error, message: `${config.name}: ${error.message}` } : error,
      );
    }
  }
  return null;
}
