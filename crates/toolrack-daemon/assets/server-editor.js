// JSON editor for the config of one server, with validation while typing.

import { request } from "./api.js";
import { diagnosticList } from "./diagnostics.js";
import { button, h, labelledControl, setAttr } from "./dom.js";
import { notify } from "./notifications.js";
import { refreshServers } from "./store.js";

/** Delay between typing and checking. */
const CHECK_DELAY_MS = 300;

/** An editor for a server. `onSaved` gets its new name. */
export function serverEditor({ config }, onSaved) {
  const { id, ...rest } = config;
  const original = JSON.stringify(rest, null, 2);
  const text = h("textarea", { class: "code", rows: "18", spellcheck: "false" });
  text.value = original;
  const diagnostics = diagnosticList("Errors");
  const state = h("span", { class: "hint", role: "status" });
  const save = button("Save", "primary", saveServer, { disabled: true });
  let timer = null;

  async function check() {
    const parsed = parse(text.value);
    const found =
      parsed.errors ?? (await requestErrors(() => request("POST", "/api/servers/check", { ...parsed.value, id })));
    diagnostics.show(found);
    const isChanged = text.value !== original;
    setAttr(save, "disabled", found.length > 0 || !isChanged);
    state.textContent =
      found.length > 0 ? "" : isChanged ? "Valid. Saving restarts the server if needed." : "";
    return found.length === 0 ? parsed.value : null;
  }

  async function saveServer() {
    const value = await check();
    if (value === null) {
      return;
    }
    const found = await requestErrors(() => request("PUT", `/api/servers/${id}`, value));
    diagnostics.show(found);
    if (found.length === 0) {
      await refreshServers();
      notify(`${value.name} saved.`);
      onSaved(value.name);
    }
  }

  text.addEventListener("input", () => {
    setAttr(save, "disabled", true);
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_DELAY_MS);
  });
  const reset = button("Reset", "quiet", () => {
    text.value = original;
    return check();
  });
  const actions = h("div", { class: "actions" }, state, reset, save);
  const hint = "Other keys of the config file go under config: args, timeout, deny …";
  return {
    element: h("div", { class: "tab stack" }, labelledControl("Server config", text, hint), diagnostics.element, actions),
  };
}

function parse(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { errors: [{ message: `invalid JSON: ${error.message}` }] };
  }
}

async function requestErrors(send) {
  try {
    await send();
    return [];
  } catch (problem) {
    return problem.errors;
  }
}
