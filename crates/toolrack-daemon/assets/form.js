// A form for the arguments of a tool, from the schema of its server.

import { h, say, set } from "./dom.js";
import { fieldOf, typedOf, valueOf } from "./schema.js";

let n_fields = 0;

/** `{ element, read, write }`: `read` gives `{ value, isSound }` and marks what is wrong. */
export function form(schema) {
  const field = fieldOf(schema);
  const made = field.kind === "group" ? group(field, true) : control({ ...field, required: false, title: "Arguments" });
  return {
    element: made.element,
    read() {
      const { value, isSound } = made.read();
      return { value: value ?? {}, isSound };
    },
    write: made.write,
  };
}

function group(field, isWhole) {
  const inner = field.fields.map((it) => [it, it.kind === "group" ? group(it, false) : control(it)]);
  const element = isWhole
    ? h("div", { class: "stack" }, ...inner.map(([, it]) => it.element))
    : h("fieldset", { class: "stack" }, h("legend", {}, field.title), ...inner.map(([, it]) => it.element));
  if (isWhole && inner.length === 0) {
    element.append(h("p", { class: "hint" }, "This tool takes no arguments."));
  }
  return {
    element,
    read() {
      const value = {};
      let isSound = true;
      for (const [{ name }, it] of inner) {
        const got = it.read();
        isSound &&= got.isSound;
        if (got.value !== undefined) {
          value[name] = got.value;
        }
      }
      // A group that nobody asked for and nobody filled in is left out.
      const isLeft = !field.required && Object.keys(value).length === 0;
      return { value: isLeft ? undefined : value, isSound: isSound || isLeft };
    },
    write(value) {
      for (const [{ name }, it] of inner) {
        it.write(value?.[name]);
      }
    },
  };
}

function control(field) {
  n_fields += 1;
  const id = `field-${n_fields}`;
  const input = inputOf(field, id);
  const fault = h("span", { class: "fault", id: `${id}-fault`, role: "alert" });
  const name = h("label", { class: "field-name", for: id }, h("code", {}, field.name || field.title));
  if (field.required) {
    name.append(h("span", { class: "required" }, " required"));
  }
  const about = [field.description, field.limits].filter(Boolean).join(" · ");
  const hint = h(
    "span",
    { class: "hint", id: `${id}-hint` },
    field.kind === "list" ? `${about} One per line.`.trim() : about,
  );
  return {
    element: h("div", { class: "field" }, name, input, hint, fault),
    read() {
      const got = valueOf(field, input.value);
      say(fault, got.fault ?? "");
      set(input, "aria-invalid", got.fault ? "true" : null);
      return { value: got.value, isSound: got.fault === undefined };
    },
    write(value) {
      input.value = typedOf(field, value);
    },
  };
}

function inputOf(field, id) {
  const common = { id, "aria-describedby": `${id}-hint ${id}-fault`, "data-argument": field.name };
  const example = field.example === undefined ? "" : typedOf(field, field.example);
  if (field.kind === "choice" || field.kind === "flag") {
    const texts = field.kind === "flag" ? ["true", "false"] : field.options.map((it) => String(it));
    const options = texts.map((text, place) =>
      h("option", { value: field.kind === "flag" ? text : String(place) }, text),
    );
    const select = h("select", common, h("option", { value: "" }, field.required ? "choose" : "not set"), ...options);
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
