// Short messages at the edge of the page, and dialogs that ask something.

import { button, h } from "./dom.js";

/** How long a message without a fault stays. */
const STAY_MS = 5000;
const MAX_NOTICES = 4;

/** Says that something was done. */
export function note(text) {
  const element = show("notice", [h("p", {}, text)]);
  setTimeout(() => element.remove(), STAY_MS);
}

/** Says what went wrong and what to do. Stays until it is closed. */
export function complain(what, problem) {
  const lines = [h("p", {}, h("strong", {}, what), ` ${sentence(problem.message)}`)];
  if (problem.hint) {
    lines.push(h("p", { class: "hint" }, sentence(problem.hint)));
  }
  show("notice bad", lines);
}

function show(kind, lines) {
  const element = h("div", { class: kind }, h("div", {}, ...lines));
  element.append(button("×", "icon", () => element.remove(), { "aria-label": "Close" }));
  const notices = document.getElementById("notices");
  notices.append(element);
  while (notices.children.length > MAX_NOTICES) {
    notices.firstElementChild.remove();
  }
  return element;
}

/** A clause as a sentence. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?`)]$/.test(begun) ? begun : `${begun}.`;
}

/** Does something, and complains if it fails. Gives whether it went well. */
export async function attempt(what, act) {
  try {
    await act();
    return true;
  } catch (problem) {
    complain(what, problem);
    return false;
  }
}

/** Asks whether to go on. */
export function confirm(question, details, yes) {
  return new Promise((answer) => {
    const dialog = h("dialog", { "aria-labelledby": "question" });
    const close = (said) => () => {
      dialog.close();
      answer(said);
    };
    const no = button("Cancel", "quiet", close(false), { autofocus: true });
    dialog.append(
      h("h2", { id: "question" }, question),
      h("p", {}, details),
      h("div", { class: "actions" }, no, button(yes, "danger", close(true))),
    );
    open(dialog, () => answer(false));
  });
}

/** Shows a dialog and takes it away when it is closed. */
export function open(dialog, closed) {
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}
