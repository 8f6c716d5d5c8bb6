// Text of strangers, made safe to show: the rules of the command line. Pure.
//
// Invariant: nothing here goes deeper with its input, so that no nesting is too deep for it.

/** What nobody can see, wherever it stands, and controls. */
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/u;
/** Parts of words and emoji, which are seen where they belong. */
const JOINER = /[\u200c\u200d]/;
const SELECTOR = /[\ufe0e\ufe0f]/;
const EMOJI_LIKE =
  /[#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\u{1f000}-\u{1faff}]/u;
const ASCII = /[\u0000-\u007f]/;

/** Commands to a terminal: a sequence to its final letter, a string to its end or that of its line, or one character. */
const COMMAND = /\u001b(?:\[[\u0020-\u003f]*[\u0040-\u007e]?|[\]P_^X][^\n\u0007\u001b]*(?:\u0007|\u001b\\?)?|[^]?)/gu;

/** Nobody reads what is nested deeper than this line by line. */
const MAX_DEPTH = 128;
/** And more indents than this are nothing to read either. */
const MAX_INDENTS = 20_000_000;

/** Whether a character is hidden behind `previous`, the one that is shown before it. */
export function isHidden(previous, character) {
  if (JOINER.test(character)) {
    return previous === "" || ASCII.test(previous) || JOINER.test(previous);
  }
  if (SELECTOR.test(character)) {
    return !EMOJI_LIKE.test(previous);
  }
  return INVISIBLE.test(character);
}

/** A text without commands to a terminal, control characters and hidden ones. Lines and tabs stay. */
export function clean(text) {
  if (isPlain(text)) {
    return text;
  }
  return mapped(text.replace(COMMAND, "").replace(/\r\n?/g, "\n"), () => "");
}

function isPlain(text) {
  return !INVISIBLE.test(text) && !JOINER.test(text) && !SELECTOR.test(text);
}

function mapped(text, replace) {
  const shown = [];
  let previous = "";
  for (const character of text) {
    if (isHidden(previous, character)) {
      shown.push(replace(character));
    } else {
      shown.push(character);
      previous = character;
    }
  }
  return shown.join("");
}

/** A value as JSON with one member to a line, or on one line if it is nested very deep. */
export function pretty(value) {
  return write(value, MAX_DEPTH) ?? compact(value);
}

/** A value as JSON on one line. */
export function compact(value) {
  return write(value, null);
}

/** `null` if the value is nested deeper than it may be to be indented. */
function write(value, maxDepth) {
  const out = [];
  const open = [];
  let n_indents = 0;
  const newLine = () => {
    if (maxDepth !== null) {
      n_indents += open.length;
      out.push("\n", "  ".repeat(open.length));
    }
  };
  const begin = (it) => {
    if (it === null || typeof it !== "object") {
      out.push(scalar(it));
      return;
    }
    const isList = Array.isArray(it);
    out.push(isList ? "[" : "{");
    open.push({ it, keys: isList ? null : Object.keys(it), place: 0 });
  };
  begin(value);
  while (open.length > 0) {
    if (maxDepth !== null && (open.length > maxDepth || n_indents > MAX_INDENTS)) {
      return null;
    }
    const top = open[open.length - 1];
    const size = top.keys === null ? top.it.length : top.keys.length;
    if (top.place === size) {
      open.pop();
      if (size > 0) {
        newLine();
      }
      out.push(top.keys === null ? "]" : "}");
      continue;
    }
    if (top.place > 0) {
      out.push(",");
    }
    newLine();
    const key = top.keys === null ? top.place : top.keys[top.place];
    if (top.keys !== null) {
      out.push(quoted(key), maxDepth === null ? ":" : ": ");
    }
    top.place += 1;
    begin(top.it[key]);
  }
  return out.join("");
}

function scalar(value) {
  return typeof value === "string" ? quoted(value) : (JSON.stringify(value) ?? "null");
}

/** Text as JSON, with escapes for what cannot be seen. They mean the same. */
function quoted(text) {
  const json = JSON.stringify(text);
  return isPlain(json) ? json : mapped(json, escaped);
}

function escaped(character) {
  return Array.from({ length: character.length }, (_, at) => {
    return `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`;
  }).join("");
}
