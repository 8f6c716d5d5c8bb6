// The config of one server as JSON, checked while it is typed and before it is saved.

import { ask } from "./api.js";
import { button, h, labelled, set } from "./dom.js";
import { faultList } from "./diagnostics.js";
import { note } from "./notifications.js";
import { refreshServers } from "./store.js";

const PAUSE_MS = 300;

/** An editor for a server. `saved` gets its new name. */
export function editor({ config }, saved) {
  const { id, ...rest } = config;
  const before = JSON.stringify(rest, null, 2);
  const text = h("textarea", { class: "code", rows: "18", spellcheck: "false" });
  text.value = before;
  const faults = faultList("What is wrong");
  const verdict = h("span", { class: "hint", role: "status" });
  const save = button("Save", "primary", store, { disabled: true });
  let timer = null;

  async function check() {
    const read = parse(text.value);
    const found = read.faults ?? (await refusal(() => ask("POST", "/api/servers/check", { ...read.value, id })));
    faults.show(found);
    const isChanged = text.value !== before;
    set(save, "disabled", found.length > 0 || !isChanged);
    verdict.textContent =
      found.length > 0 ? "" : isChanged ? "Sound. Saving restarts it if what runs is different." : "";
    return found.length === 0 ? read.value : null;
  }

  async function store() {
    const value = await check();
    if (value === null) {
      return;
    }
    const found = await refusal(() => ask("PUT", `/api/servers/${id}`, value));
    faults.show(found);
    if (found.length === 0) {
      await refreshServers();
      note(`${value.name} was saved.`);
      saved(value.name);
    }
  }

  text.addEventListener("input", () => {
    set(save, "disabled", true);
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MS);
  });
  const reset = button("Undo", "quiet", () => {
    text.value = before;
    return check();
  });
  const actions = h("div", { class: "actions" }, verdict, reset, save);
  const hint = "Keys of the config file that have no member of their own stand under config: args, timeout, deny …";
  return {
    element: h("div", { class: "tab stack" }, labelled("Config of this server", text, hint), faults.element, actions),
  };
}

function parse(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { faults: [{ message: `this is no JSON: ${error.message}` }] };
  }
}

async function refusal(act) {
  try {
    await act();
    return [];
  } catch (problem) {
    return problem.errors;
  }
}
