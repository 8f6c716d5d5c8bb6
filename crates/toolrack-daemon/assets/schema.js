// A JSON Schema as fields of a form, and the values of such a form as arguments. Pure.
//
// Only what a person can fill in is understood. Everything else becomes a field for JSON, so that every tool can be
// called.

import { compact, pretty } from "./sanitize.js";

const MAX_DEPTH = 6;
const SCALARS = ["string", "number", "integer", "boolean"];

/**
 * The field for a schema: `{ kind, name, title, description, required, example, options, fields, item }`. `kind` is
 * `text`, `number`, `integer`, `flag`, `choice`, `group`, `list` (of text or numbers) or `json`.
 */
export function fieldOf(schema, name = "", required = true, root = schema, depth = 0) {
  const plain = simplified(schema, root, depth);
  const about = {
    name,
    title: plain.title ?? name,
    description: plain.description ?? "",
    required,
    example: plain.default ?? plain.examples?.[0],
    limits: limits(plain),
  };
  if (Array.isArray(plain.enum) || plain.const !== undefined) {
    return { ...about, kind: "choice", options: plain.enum ?? [plain.const] };
  }
  const type = kindOf(plain);
  if (type === "object" && plain.properties && depth < MAX_DEPTH) {
    const needed = new Set(plain.required ?? []);
    const fields = Object.entries(plain.properties).map(([key, inner]) =>
      fieldOf(inner, key, needed.has(key), root, depth + 1),
    );
    return { ...about, kind: "group", fields };
  }
  if (type === "array" && plain.items && typeof plain.items === "object") {
    const item = kindOf(simplified(plain.items, root, depth));
    if (["string", "number", "integer"].includes(item)) {
      return { ...about, kind: "list", item };
    }
  }
  const kinds = { string: "text", number: "number", integer: "integer", boolean: "flag" };
  return { ...about, kind: kinds[type] ?? "json" };
}

/** Follows references and takes the one choice that is not `null`. */
function simplified(schema, root, depth) {
  if (typeof schema !== "object" || schema === null || depth > MAX_DEPTH) {
    return {};
  }
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/")) {
    const keys = schema.$ref
      .slice(2)
      .split("/")
      .map((it) => it.replaceAll("~1", "/").replaceAll("~0", "~"));
    const target = keys.reduce((value, key) => value?.[key], root);
    const { $ref: _followed, ...beside } = schema;
    return { ...simplified(target, root, depth + 1), ...beside };
  }
  const choices = (schema.anyOf ?? schema.oneOf)?.filter((it) => it?.type !== "null");
  if (choices?.length === 1) {
    const { anyOf: _any, oneOf: _one, ...beside } = schema;
    return { ...simplified(choices[0], root, depth + 1), ...beside };
  }
  return schema;
}

function kindOf(schema) {
  const types = [schema.type ?? []].flat().filter((it) => it !== "null");
  if (types.length === 1) {
    return types[0];
  }
  return types.length === 0 && schema.properties ? "object" : "any";
}

function limits({ minimum, maximum, minLength, maxLength, pattern, format }) {
  const range =
    minimum !== undefined && maximum !== undefined
      ? `${minimum} to ${maximum}`
      : minimum !== undefined
        ? `at least ${minimum}`
        : maximum !== undefined
          ? `at most ${maximum}`
          : null;
  const length = minLength > 1 ? `at least ${minLength} characters` : null;
  const longest = maxLength !== undefined ? `at most ${maxLength} characters` : null;
  return [range, length, longest, format, pattern ? `like ${pattern}` : null].filter(Boolean).join(", ");
}

/**
 * The value that was typed into a field: `{ value }`, `{}` if it was left empty, or `{ fault }`. `typed` is the text,
 * or `true`/`false` as text for flags, or the place of a choice as text.
 */
export function valueOf(field, typed) {
  if (typed === "" || (typed.trim() === "" && field.kind !== "text")) {
    return field.required && field.kind !== "text" ? { fault: "a value is needed" } : emptyText(field);
  }
  switch (field.kind) {
    case "text":
      return { value: typed };
    case "flag":
      return { value: typed === "true" };
    case "choice":
      return { value: field.options[Number(typed)] };
    case "number":
    case "integer":
      return number(field.kind, typed);
    case "list":
      return list(field, typed);
    default:
      return json(typed);
  }
}

function emptyText(field) {
  return field.kind === "text" && field.required ? { value: "" } : {};
}

function number(kind, typed) {
  const value = Number(typed);
  if (!Number.isFinite(value)) {
    return { fault: "this is no number" };
  }
  return kind === "integer" && !Number.isInteger(value) ? { fault: "a whole number is needed" } : { value };
}

function list(field, typed) {
  const items = typed
    .split("\n")
    .map((it) => it.trim())
    .filter((it) => it !== "");
  if (field.item === "string") {
    return { value: items };
  }
  const numbers = items.map((it) => number(field.item, it));
  const wrong = numbers.find((it) => it.fault);
  return wrong ?? { value: numbers.map((it) => it.value) };
}

function json(typed) {
  try {
    return { value: JSON.parse(typed) };
  } catch (error) {
    return { fault: `this is no JSON: ${error.message}` };
  }
}

/** What a field shows for a value, so that [`valueOf`] gives the value back. */
export function typedOf(field, value) {
  if (value === undefined || value === null) {
    return "";
  }
  if (field.kind === "choice") {
    const place = field.options.findIndex((it) => compact(it) === compact(value));
    return place < 0 ? "" : String(place);
  }
  if (field.kind === "list" && Array.isArray(value)) {
    return value.join("\n");
  }
  return SCALARS.includes(typeof value) ? String(value) : pretty(value);
}
