// Everything that is wrong with an input, as a list under it.

import { h, set, sync } from "./dom.js";
import { sentence } from "./notifications.js";

/** An element for faults: `show(faults)` with `{message, field, hint, line, severity}` each. */
export function faultList(label) {
  const element = h("ul", { class: "faults", "aria-label": label, "aria-live": "polite", hidden: true });
  return {
    element,
    show(faults, jump) {
      set(element, "hidden", faults.length === 0);
      const keyed = faults.map((fault, place) => ({ fault, key: `${place} ${JSON.stringify(fault)}` }));
      sync(
        element,
        keyed,
        (it) => it.key,
        ({ fault }) => item(fault, jump),
      );
    },
  };
}

function item(fault, jump) {
  const place = [fault.line ? `line ${fault.line}` : null, fault.field].filter(Boolean).join(", ");
  const where =
    place !== "" && jump && fault.line
      ? h("button", { type: "button", class: "link", onclick: () => jump(fault) }, place)
      : h("code", {}, place);
  const hint = fault.hint ? h("span", { class: "hint" }, ` ${sentence(fault.hint)}`) : null;
  return h(
    "li",
    { class: fault.severity === "warning" ? "warn" : "bad" },
    place === "" ? null : where,
    place === "" ? null : " ",
    h("span", {}, place === "" ? sentence(fault.message) : fault.message),
    hint,
  );
}
