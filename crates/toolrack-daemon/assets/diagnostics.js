// List of errors and warnings below an input.

import { h, setAttr, syncChildren } from "./dom.js";
import { sentence } from "./notifications.js";

/** `{ element, show(diagnostics, onJump) }`. A diagnostic is `{message, field, hint, line, severity}`. */
export function diagnosticList(label) {
  const element = h("ul", { class: "diagnostics", "aria-label": label, "aria-live": "polite", hidden: true });
  return {
    element,
    show(diagnostics, onJump) {
      setAttr(element, "hidden", diagnostics.length === 0);
      const keyed = diagnostics.map((diagnostic, index) => ({
        diagnostic,
        key: `${index} ${JSON.stringify(diagnostic)}`,
      }));
      syncChildren(
        element,
        keyed,
        ({ key }) => key,
        ({ diagnostic }) => makeItem(diagnostic, onJump),
      );
    },
  };
}

function makeItem(diagnostic, onJump) {
  const { line, field, message, hint, severity } = diagnostic;
  const position = [line ? `line ${line}` : null, field].filter(Boolean).join(", ");
  const location =
    position !== "" && onJump && line
      ? h("button", { type: "button", class: "link", onclick: () => onJump(diagnostic) }, position)
      : h("code", {}, position);
  return h(
    "li",
    { class: severity === "warning" ? "warn" : "bad" },
    position === "" ? null : location,
    position === "" ? null : " ",
    h("span", {}, position === "" ? sentence(message) : message),
    hint ? h("span", { class: "hint" }, ` ${sentence(hint)}`) : null,
  );
}
