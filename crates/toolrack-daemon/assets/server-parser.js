// What a person pastes to add a server, made into configs: a command line, a URL, or JSON of another tool. Pure.

const CONTAINERS = ["mcpServers", "servers", "context_servers", "mcp", "extensions"];
const URL_KEYS = ["url", "serverUrl", "httpUrl", "uri"];
const KNOWN = [
  "command",
  "cmd",
  "args",
  "env",
  "envs",
  "environment",
  "headers",
  "cwd",
  "type",
  "transport",
  "name",
  "enabled",
  "disabled",
  "source",
  ...URL_KEYS,
];
const LAUNCHERS = ["npx", "uvx", "bunx", "pnpm", "dlx", "docker", "run", "node", "python", "python3", "deno", "exec"];

/** Something that cannot be read. Its message says what to do. */
export class Unreadable extends Error {}

/** Reads what was pasted: `{ configs, notes }`. `name` is for what has none of its own. */
export function readAddition(text, name) {
  const pasted = text.trim().replace(/^\$ /, "");
  if (pasted === "") {
    throw new Unreadable("Type a command such as `npx -y @modelcontextprotocol/server-everything`, a URL, or JSON.");
  }
  if (/^([{["]|\/\/|\/\*)/.test(pasted) && !/^"[^"]*"\s+[^:\s]/.test(pasted)) {
    return readSnippet(pasted, name);
  }
  if (/^https?:\/\/\S+$/.test(pasted)) {
    return { configs: [overHttp(name || guessName([pasted]), pasted, {})], notes: [] };
  }
  return { configs: [readCommand(pasted, name)], notes: [] };
}

function readCommand(text, name) {
  const words = splitWords(text);
  const env = {};
  while (/^[A-Za-z_][A-Za-z0-9_]*=/.test(words[0] ?? "")) {
    const [variable] = words[0].split("=", 1);
    env[variable] = words.shift().slice(variable.length + 1);
  }
  if (words.length === 0) {
    throw new Unreadable("There are variables and no program. Put the program behind them.");
  }
  const [program, ...args] = words;
  return overStdio(name || guessName(words), program, args, env, {});
}

/** Splits a command line as a shell would, without running or replacing anything. */
export function splitWords(text) {
  const words = [];
  let word = null;
  let quote = null;
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at];
    if (quote !== null) {
      if (c === quote) {
        quote = null;
      } else if (c === "\\" && quote === '"' && '"\\$`'.includes(text[at + 1])) {
        at += 1;
        word += text[at];
      } else {
        word += c;
      }
    } else if (c === "'" || c === '"') {
      quote = c;
      word ??= "";
    } else if (c === "\\") {
      at += 1;
      // A line that goes on in the next one.
      if (text[at] !== "\n") {
        word = (word ?? "") + (text[at] ?? "");
      }
    } else if (/\s/.test(c)) {
      if (word !== null) {
        words.push(word);
      }
      word = null;
    } else if ("|&;<>`".includes(c)) {
      const remedy = "No shell runs it: put it in quotes, or write `sh -c '…'`.";
      throw new Unreadable(`\`${c}\` means something to a shell only. ${remedy}`);
    } else {
      word = (word ?? "") + c;
    }
  }
  if (quote !== null) {
    throw new Unreadable(`The quote ${quote} is not closed.`);
  }
  return word === null ? words : [...words, word];
}

/** The opposite: a command line that is split into these words. */
export function joinWords(words) {
  const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;
  return words.map((word) => (/^[\w@%+=:,./{}$-]+$/.test(word) ? word : quoted(word))).join(" ");
}

function readSnippet(text, name) {
  // Many pages show one member without the braces around it.
  const whole = text.startsWith('"') ? `{${text.replace(/,\s*$/, "")}}` : text;
  let value;
  try {
    value = JSON.parse(plainJson(whole));
  } catch (error) {
    throw new Unreadable(`This is no JSON: ${error.message}.`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Unreadable('Paste an object such as {"mcpServers": {"name": {"command": "…"}}}.');
  }
  const notes = [];
  const configs = entries(value, name).map(([key, entry]) => readEntry(key, entry, notes));
  if (configs.length === 0) {
    throw new Unreadable("There is no server in it.");
  }
  return { configs, notes };
}

function entries(value, name) {
  if (value.package) {
    return [[value.name, value]];
  }
  if (value.command || value.cmd || URL_KEYS.some((key) => typeof value[key] === "string")) {
    return [[value.name || name, value]];
  }
  const container = CONTAINERS.find((key) => typeof value[key] === "object" && value[key] !== null);
  const inside = container === undefined ? value : value[container];
  // VS Code has one container inside of another.
  return container === "mcp" && inside.servers ? Object.entries(inside.servers) : Object.entries(inside);
}

function readEntry(key, entry, notes) {
  if (typeof entry !== "object" || entry === null) {
    throw new Unreadable(`\`${key}\` is no server: an object with \`command\` or \`url\` is expected.`);
  }
  if (entry.package) {
    return entry;
  }
  const left = Object.keys(entry).filter((it) => !KNOWN.includes(it));
  if (left.length > 0) {
    notes.push(`${key ?? "server"}: ${left.map((it) => `\`${it}\``).join(", ")} left out; set it in the config file.`);
  }
  const url = URL_KEYS.map((it) => entry[it]).find((it) => typeof it === "string");
  // Zed has the program, its arguments and its environment below `command`.
  const nested = entry.command?.path ? entry.command : {};
  const command = nested.path ?? entry.command ?? entry.cmd;
  const [program, ...first] = Array.isArray(command) ? command : [command];
  const args = [...first, ...(nested.args ?? entry.args ?? [])].map(String);
  const env = nested.env ?? entry.env ?? entry.envs ?? entry.environment ?? {};
  const rest = { ...(entry.cwd && { cwd: entry.cwd }), ...(entry.headers && { headers: entry.headers }) };
  const enabled = entry.disabled !== true && entry.enabled !== false;
  if (url !== undefined) {
    return { ...overHttp(key || guessName([url]), url, rest), enabled };
  }
  if (typeof program !== "string" || program === "") {
    throw new Unreadable(`\`${key ?? "server"}\` has neither \`command\` nor \`url\`.`);
  }
  return { ...overStdio(key || guessName([program, ...args]), program, args, env, rest), enabled };
}

function overStdio(name, program, args, env, rest) {
  const values = Object.entries(env).map(([variable, value]) => [variable, { name: variable, value: String(value) }]);
  return {
    name,
    package: { package_type: "binary", identifier: program },
    transport: { type: "stdio" },
    ...(values.length > 0 && { env_vars: Object.fromEntries(values) }),
    config: { ...(args.length > 0 && { args }), ...rest },
  };
}

function overHttp(name, url, rest) {
  const config = Object.keys(rest).length > 0 ? { config: rest } : {};
  return { name, package: { package_type: "http", identifier: url }, transport: { type: "http", url }, ...config };
}

/** A name for a server that has none: what is left of its package or host without the usual ornaments. */
export function guessName(words) {
  const telling = words.find((word) => !word.startsWith("-") && !LAUNCHERS.includes(word)) ?? words[0];
  const host = /^https?:\/\/([^/:]+)/.exec(telling)?.[1];
  const parts = host?.split(".").filter((it) => !["www", "mcp", "api"].includes(it));
  const base = parts ? (parts.length > 1 ? parts.slice(0, -1).join("-") : parts[0]) : telling.split(/[/\\]/).pop();
  const plain = base.replace(/@[^@]*$/, "").replace(/\.(js|mjs|py|sh|exe)$/, "");
  const short = plain
    .replace(/^(mcp-)?server-/, "")
    .replace(/^mcp-/, "")
    .replace(/-mcp(-server)?$|-server$/, "");
  return (short || plain || "server").replace(/[^A-Za-z0-9_-]/g, "-").slice(0, 40) || "server";
}

/** JSON out of JSON with comments and commas behind the last member. Strings are left alone. */
export function plainJson(text) {
  const tokens = /("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[^]*?\*\//g;
  const bare = text.replace(tokens, (_all, string) => string ?? "");
  return bare.replace(/("(?:\\.|[^"\\])*")|,(?=\s*[}\]])/g, (_all, string) => string ?? "");
}
