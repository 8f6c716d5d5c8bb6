// Form for the arguments of a tool, generated from its JSON Schema.

import { h, setAttr, setText } from "./dom.js";
import { formField, formatValue, parseValue } from "./schema.js";

let fieldCount = 0;

/** `{ element, read, write }`: `read` returns `{ value, isValid }` and marks invalid fields. */
export function argumentForm(schema) {
  const field = formField(schema);
  const root = field.kind === "group" ? group(field, true) : control({ ...field, required: false, title: "Arguments" });
  return {
    element: root.element,
    read() {
      const { value, isValid } = root.read();
      return { value: value ?? {}, isValid };
    },
    write: root.write,
  };
}

function group(field, isRoot) {
  const children = field.fields.map((child) => [child, child.kind === "group" ? group(child, false) : control(child)]);
  const element = isRoot
    ? h("div", { class: "stack" }, ...children.map(([, input]) => input.element))
    : h("fieldset", { class: "stack" }, h("legend", {}, field.title), ...children.map(([, input]) => input.element));
  if (isRoot && children.length === 0) {
    element.append(h("p", { class: "hint" }, "This tool takes no arguments."));
  }
  return {
    element,
    read() {
      const value = {};
      let isValid = true;
      for (const [{ name }, input] of children) {
        const result = input.read();
        isValid &&= result.isValid;
        if (result.value !== undefined) {
          value[name] = result.value;
        }
      }
      // An optional group without values is omitted.
      const isOmitted = !field.required && Object.keys(value).length === 0;
      return { value: isOmitted ? undefined : value, isValid: isValid || isOmitted };
    },
    write(value) {
      for (const [{ name }, input] of children) {
        input.write(value?.[name]);
      }
    },
  };
}

function control(field) {
  fieldCount += 1;
  const id = `field-${fieldCount}`;
  const input = makeInput(field, id);
  const error = h("span", { class: "field-error", id: `${id}-error`, role: "alert" });
  const name = h("label", { class: "field-name", for: id }, h("code", {}, field.name || field.title));
  if (field.required) {
    name.append(h("span", { class: "required" }, " required"));
  }
  const details = [field.description, field.limits].filter(Boolean).join(" · ");
  const hint = h(
    "span",
    { class: "hint", id: `${id}-hint` },
    field.kind === "list" ? `${details} One per line.`.trim() : details,
  );
  return {
    element: h("div", { class: "field" }, name, input, hint, error),
    read() {
      const result = parseValue(field, input.value);
      setText(error, result.error ?? "");
      setAttr(input, "aria-invalid", result.error ? "true" : null);
      return { value: result.value, isValid: result.error === undefined };
    },
    write(value) {
      input.value = formatValue(field, value);
    },
  };
}

function makeInput(field, id) {
  const common = { id, "aria-describedby": `${id}-hint ${id}-error`, "data-argument": field.name };
  const example = field.example === undefined ? "" : formatValue(field, field.example);
  if (field.kind === "choice" || field.kind === "flag") {
    const texts = field.kind === "flag" ? ["true", "false"] : field.options.map((option) => String(option));
    const options = texts.map((text, index) =>
      h("option", { value: field.kind === "flag" ? text : String(index) }, text),
    );
    const select = h("select", common, h("option", { value: "" }, field.required ? "Select…" : "Not set"), ...options);
    select.value = example;
    return select;
  }
  if (field.kind === "json" || field.kind === "list") {
    return h("textarea", { ...common, class: "code", rows: "3", spellcheck: "false", placeholder: example });
  }
  if (field.kind === "text" && /message|text|content|query|code|body|prompt|description/i.test(field.name)) {
    return h("textarea", { ...common, rows: "2", placeholder: example });
  }
  const mode = { number: "decimal", integer: "numeric" }[field.kind];
  return h("input", {
    ...common,
    type: "text",
    inputmode: mode,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: example,
  });
}
