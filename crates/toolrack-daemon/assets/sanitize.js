// Sanitizes untrusted text and formats JSON, by the same rules as the command line. Pure.
//
// Invariant: nothing here is recursive, so deeply nested input cannot overflow the stack.

/** Control characters, and characters that are invisible everywhere. */
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/u;
/** Joiners and variation selectors, which are legitimate in words and emoji. */
const JOINER = /[\u200c\u200d]/;
const SELECTOR = /[\ufe0e\ufe0f]/;
const EMOJI_LIKE =
  /[#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\u{1f000}-\u{1faff}]/u;
const ASCII = /[\u0000-\u007f]/;

/** Terminal escape sequences: CSI to its final byte, OSC and the like to their end or line end, or ESC and one more. */
const ESCAPE_SEQUENCE = /\u001b(?:\[[\u0020-\u003f]*[\u0040-\u007e]?|[\]P_^X][^\n\u0007\u001b]*(?:\u0007|\u001b\\?)?|[^]?)/gu;

/** Deeper values are written on one line. */
const MAX_DEPTH = 128;
/** So are values whose indentation would take more than this. */
const MAX_INDENTS = 20_000_000;

/** Whether a character is invisible after `previous`, the last visible one. */
export function isHidden(previous, character) {
  if (JOINER.test(character)) {
    return previous === "" || ASCII.test(previous) || JOINER.test(previous);
  }
  if (SELECTOR.test(character)) {
    return !EMOJI_LIKE.test(previous);
  }
  return INVISIBLE.test(character);
}

/** Removes escape sequences, control characters and invisible characters. Keeps line breaks and tabs. */
export function sanitize(text) {
  if (isClean(text)) {
    return text;
  }
  return mapHidden(text.replace(ESCAPE_SEQUENCE, "").replace(/\r\n?/g, "\n"), () => "");
}

function isClean(text) {
  return !INVISIBLE.test(text) && !JOINER.test(text) && !SELECTOR.test(text);
}

function mapHidden(text, replace) {
  const output = [];
  let previous = "";
  for (const character of text) {
    if (isHidden(previous, character)) {
      output.push(replace(character));
    } else {
      output.push(character);
      previous = character;
    }
  }
  return output.join("");
}

/** Formats a value as indented JSON, or on one line if it is nested very deep. */
export function prettyJson(value) {
  return write(value, MAX_DEPTH) ?? compactJson(value);
}

/** Formats a value as JSON on one line. */
export function compactJson(value) {
  return write(value, null);
}

/** Returns `null` if the value is too deep to be indented. */
function write(value, maxDepth) {
  const out = [];
  const stack = [];
  let indentCount = 0;
  const newLine = () => {
    if (maxDepth !== null) {
      indentCount += stack.length;
      out.push("\n", "  ".repeat(stack.length));
    }
  };
  const begin = (node) => {
    if (node === null || typeof node !== "object") {
      out.push(scalar(node));
      return;
    }
    const isList = Array.isArray(node);
    out.push(isList ? "[" : "{");
    stack.push({ node, keys: isList ? null : Object.keys(node), index: 0 });
  };
  begin(value);
  while (stack.length > 0) {
    if (maxDepth !== null && (stack.length > maxDepth || indentCount > MAX_INDENTS)) {
      return null;
    }
    const top = stack[stack.length - 1];
    const size = top.keys === null ? top.node.length : top.keys.length;
    if (top.index === size) {
      stack.pop();
      if (size > 0) {
        newLine();
      }
      out.push(top.keys === null ? "]" : "}");
      continue;
    }
    if (top.index > 0) {
      out.push(",");
    }
    newLine();
    const key = top.keys === null ? top.index : top.keys[top.index];
    if (top.keys !== null) {
      out.push(quoted(key), maxDepth === null ? ":" : ": ");
    }
    top.index += 1;
    begin(top.node[key]);
  }
  return out.join("");
}

function scalar(value) {
  return typeof value === "string" ? quoted(value) : (JSON.stringify(value) ?? "null");
}

/** Writes a JSON string with escapes for invisible characters. */
function quoted(text) {
  const json = JSON.stringify(text);
  return isClean(json) ? json : mapHidden(json, escaped);
}

function escaped(character) {
  return Array.from({ length: character.length }, (_, index) => {
    return `\\u${character.charCodeAt(index).toString(16).padStart(4, "0")}`;
  }).join("");
}
