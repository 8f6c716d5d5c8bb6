// Notifications (toasts) at the edge of the page, and modal dialogs.

import { button, h } from "./dom.js";

/** How long a success notification is shown. */
const DURATION_MS = 5000;
const MAX_NOTIFICATIONS = 4;

/** Shows a success notification. */
export function notify(text) {
  const element = show("toast", [h("p", {}, text)]);
  setTimeout(() => element.remove(), DURATION_MS);
}

/** Shows an error notification with its hint, until it is closed. */
export function notifyError(title, problem) {
  const lines = [h("p", {}, h("strong", {}, title), ` ${sentence(problem.message)}`)];
  if (problem.hint) {
    lines.push(h("p", { class: "hint" }, sentence(problem.hint)));
  }
  show("toast bad", lines);
}

function show(kind, lines) {
  const element = h("div", { class: kind }, h("div", {}, ...lines));
  element.append(button("×", "icon", () => element.remove(), { "aria-label": "Close" }));
  const container = document.getElementById("toasts");
  container.append(element);
  while (container.children.length > MAX_NOTIFICATIONS) {
    container.firstElementChild.remove();
  }
  return element;
}

/** Turns a clause into a sentence: capital letter and full stop. */
export function sentence(text) {
  const capitalized = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?`)]$/.test(capitalized) ? capitalized : `${capitalized}.`;
}

/** Runs an action and shows an error notification if it fails. Returns whether it succeeded. */
export async function attempt(errorTitle, action) {
  try {
    await action();
    return true;
  } catch (problem) {
    notifyError(errorTitle, problem);
    return false;
  }
}

/** Asks for confirmation. */
export function confirm(title, details, confirmLabel) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "question" });
    const closeWith = (isConfirmed) => () => {
      dialog.close();
      resolve(isConfirmed);
    };
    const cancel = button("Cancel", "quiet", closeWith(false), { autofocus: true });
    dialog.append(
      h("h2", { id: "question" }, title),
      h("p", {}, details),
      h("div", { class: "actions" }, cancel, button(confirmLabel, "danger", closeWith(true))),
    );
    openDialog(dialog, () => resolve(false));
  });
}

/** Shows a modal dialog and removes it when it is closed. */
export function openDialog(dialog, onClose) {
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}
