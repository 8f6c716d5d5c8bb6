// JSON Schema to form fields, and form input to arguments. Pure.
//
// Schemas that no simple control can express become JSON fields, so that every tool can be called.

import { compactJson, prettyJson } from "./sanitize.js";

const MAX_DEPTH = 6;
const SCALARS = ["string", "number", "integer", "boolean"];

/**
 * The field for a schema: `{ kind, name, title, description, required, example, options, fields, item }`. `kind` is
 * `text`, `number`, `integer`, `flag`, `choice`, `group`, `list` (of text or numbers) or `json`.
 */
export function formField(schema, name = "", required = true, root = schema, depth = 0) {
  const resolved = resolve(schema, root, depth);
  const common = {
    name,
    title: resolved.title ?? name,
    description: resolved.description ?? "",
    required,
    example: resolved.default ?? resolved.examples?.[0],
    limits: limits(resolved),
  };
  if (Array.isArray(resolved.enum) || resolved.const !== undefined) {
    return { ...common, kind: "choice", options: resolved.enum ?? [resolved.const] };
  }
  const type = schemaType(resolved);
  if (type === "object" && resolved.properties && depth < MAX_DEPTH) {
    const requiredKeys = new Set(resolved.required ?? []);
    const fields = Object.entries(resolved.properties).map(([key, inner]) =>
      formField(inner, key, requiredKeys.has(key), root, depth + 1),
    );
    return { ...common, kind: "group", fields };
  }
  if (type === "array" && resolved.items && typeof resolved.items === "object") {
    const item = schemaType(resolve(resolved.items, root, depth));
    if (["string", "number", "integer"].includes(item)) {
      return { ...common, kind: "list", item };
    }
  }
  const kinds = { string: "text", number: "number", integer: "integer", boolean: "flag" };
  return { ...common, kind: kinds[type] ?? "json" };
}

/** Resolves `$ref`, and `anyOf`/`oneOf` with a single non-null alternative. */
function resolve(schema, root, depth) {
  if (typeof schema !== "object" || schema === null || depth > MAX_DEPTH) {
    return {};
  }
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/")) {
    const keys = schema.$ref
      .slice(2)
      .split("/")
      .map((segment) => segment.replaceAll("~1", "/").replaceAll("~0", "~"));
    const target = keys.reduce((value, key) => value?.[key], root);
    const { $ref: _resolved, ...siblings } = schema;
    return { ...resolve(target, root, depth + 1), ...siblings };
  }
  const choices = (schema.anyOf ?? schema.oneOf)?.filter((choice) => choice?.type !== "null");
  if (choices?.length === 1) {
    const { anyOf: _any, oneOf: _one, ...siblings } = schema;
    return { ...resolve(choices[0], root, depth + 1), ...siblings };
  }
  return schema;
}

function schemaType(schema) {
  const types = [schema.type ?? []].flat().filter((type) => type !== "null");
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
  return [range, length, longest, format, pattern ? `pattern ${pattern}` : null].filter(Boolean).join(", ");
}

/**
 * Parses the input of a field: `{ value }`, `{}` if it is empty, or `{ error }`. `input` is the text, `true` or `false`
 * for flags, or the index of the option for choices.
 */
export function parseValue(field, input) {
  if (input === "" || (input.trim() === "" && field.kind !== "text")) {
    return field.required && field.kind !== "text" ? { error: "required" } : emptyText(field);
  }
  switch (field.kind) {
    case "text":
      return { value: input };
    case "flag":
      return { value: input === "true" };
    case "choice":
      return { value: field.options[Number(input)] };
    case "number":
    case "integer":
      return parseNumber(field.kind, input);
    case "list":
      return parseList(field, input);
    default:
      return parseJson(input);
  }
}

function emptyText(field) {
  return field.kind === "text" && field.required ? { value: "" } : {};
}

function parseNumber(kind, input) {
  const value = Number(input);
  if (!Number.isFinite(value)) {
    return { error: "must be a number" };
  }
  return kind === "integer" && !Number.isInteger(value) ? { error: "must be an integer" } : { value };
}

function parseList(field, input) {
  const items = input
    .split("\n")
    .map((item) => item.trim())
    .filter((item) => item !== "");
  if (field.item === "string") {
    return { value: items };
  }
  const numbers = items.map((item) => parseNumber(field.item, item));
  const invalid = numbers.find(({ error }) => error);
  return invalid ?? { value: numbers.map(({ value }) => value) };
}

function parseJson(input) {
  try {
    return { value: JSON.parse(input) };
  } catch (error) {
    return { error: `invalid JSON: ${error.message}` };
  }
}

/** Formats a value for a field; the inverse of `parseValue`. */
export function formatValue(field, value) {
  if (value === undefined || value === null) {
    return "";
  }
  if (field.kind === "choice") {
    const index = field.options.findIndex((option) => compactJson(option) === compactJson(value));
    return index < 0 ? "" : String(index);
  }
  if (field.kind === "list" && Array.isArray(value)) {
    return value.join("\n");
  }
  return SCALARS.includes(typeof value) ? String(value) : prettyJson(value);
}
