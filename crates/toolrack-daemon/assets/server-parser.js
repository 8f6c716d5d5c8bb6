// Parses a pasted command line, URL or JSON config of another tool into server configs. Pure.

const CONTAINERS = ["mcpServers", "servers", "context_servers", "mcp", "extensions"];
const URL_KEYS = ["url", "serverUrl", "httpUrl", "uri"];
const KNOWN_KEYS = [
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

/** Input that cannot be parsed. The message is shown to the user. */
export class ParseError extends Error {}

/** Parses input into `{ configs, notes }`. `name` is used for a server without a name. */
export function parseServers(text, name) {
  const input = text.trim().replace(/^\$ /, "");
  if (input === "") {
    throw new ParseError("Enter a command such as `npx -y @modelcontextprotocol/server-everything`, a URL, or JSON.");
  }
  if (/^([{["]|\/\/|\/\*)/.test(input) && !/^"[^"]*"\s+[^:\s]/.test(input)) {
    return parseSnippet(input, name);
  }
  if (/^https?:\/\/\S+$/.test(input)) {
    return { configs: [httpServer(name || guessName([input]), input, {})], notes: [] };
  }
  return { configs: [parseCommand(input, name)], notes: [] };
}

function parseCommand(text, name) {
  const words = splitWords(text);
  const env = {};
  while (/^[A-Za-z_][A-Za-z0-9_]*=/.test(words[0] ?? "")) {
    const [variable] = words[0].split("=", 1);
    env[variable] = words.shift().slice(variable.length + 1);
  }
  if (words.length === 0) {
    throw new ParseError("The command is missing. Enter it after the variables.");
  }
  const [program, ...args] = words;
  return stdioServer(name || guessName(words), program, args, env, {});
}

/** Splits a command line like a POSIX shell, without expansion. */
export function splitWords(text) {
  const words = [];
  let word = null;
  let quote = null;
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (quote !== null) {
      if (c === quote) {
        quote = null;
      } else if (c === "\\" && quote === '"' && '"\\$`'.includes(text[i + 1])) {
        i += 1;
        word += text[i];
      } else {
        word += c;
      }
    } else if (c === "'" || c === '"') {
      quote = c;
      word ??= "";
    } else if (c === "\\") {
      i += 1;
      // Line continuation.
      if (text[i] !== "\n") {
        word = (word ?? "") + (text[i] ?? "");
      }
    } else if (/\s/.test(c)) {
      if (word !== null) {
        words.push(word);
      }
      word = null;
    } else if ("|&;<>`".includes(c)) {
      const advice = "Commands do not run in a shell: quote it, or use `sh -c '…'`.";
      throw new ParseError(`\`${c}\` is shell syntax. ${advice}`);
    } else {
      word = (word ?? "") + c;
    }
  }
  if (quote !== null) {
    throw new ParseError(`Unclosed quote: ${quote}`);
  }
  return word === null ? words : [...words, word];
}

/** Quotes and joins words; the inverse of `splitWords`. */
export function joinWords(words) {
  const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;
  return words.map((word) => (/^[\w@%+=:,./{}$-]+$/.test(word) ? word : quoted(word))).join(" ");
}

function parseSnippet(text, name) {
  // READMEs often show a single member without the enclosing braces.
  const json = text.startsWith('"') ? `{${text.replace(/,\s*$/, "")}}` : text;
  let value;
  try {
    value = JSON.parse(stripComments(json));
  } catch (error) {
    throw new ParseError(`Invalid JSON: ${error.message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ParseError('Paste an object such as {"mcpServers": {"name": {"command": "…"}}}.');
  }
  const notes = [];
  const configs = serverEntries(value, name).map(([key, entry]) => parseEntry(key, entry, notes));
  if (configs.length === 0) {
    throw new ParseError("No servers found.");
  }
  return { configs, notes };
}

function serverEntries(value, name) {
  if (value.package) {
    return [[value.name, value]];
  }
  if (value.command || value.cmd || URL_KEYS.some((key) => typeof value[key] === "string")) {
    return [[value.name || name, value]];
  }
  const container = CONTAINERS.find((key) => typeof value[key] === "object" && value[key] !== null);
  const members = container === undefined ? value : value[container];
  // VS Code nests `servers` in `mcp`.
  return container === "mcp" && members.servers ? Object.entries(members.servers) : Object.entries(members);
}

function parseEntry(key, entry, notes) {
  if (typeof entry !== "object" || entry === null) {
    throw new ParseError(`\`${key}\` is not a server: expected an object with \`command\` or \`url\`.`);
  }
  if (entry.package) {
    return entry;
  }
  const ignored = Object.keys(entry).filter((member) => !KNOWN_KEYS.includes(member));
  if (ignored.length > 0) {
    const members = ignored.map((member) => `\`${member}\``).join(", ");
    notes.push(`${key ?? "server"}: ${members} ignored; set it in the config file.`);
  }
  const url = URL_KEYS.map((member) => entry[member]).find((value) => typeof value === "string");
  // Zed nests program, arguments and environment in `command`.
  const nested = entry.command?.path ? entry.command : {};
  const command = nested.path ?? entry.command ?? entry.cmd;
  const [program, ...first] = Array.isArray(command) ? command : [command];
  const args = [...first, ...(nested.args ?? entry.args ?? [])].map(String);
  const env = nested.env ?? entry.env ?? entry.envs ?? entry.environment ?? {};
  const rest = { ...(entry.cwd && { cwd: entry.cwd }), ...(entry.headers && { headers: entry.headers }) };
  const enabled = entry.disabled !== true && entry.enabled !== false;
  if (url !== undefined) {
    return { ...httpServer(key || guessName([url]), url, rest), enabled };
  }
  if (typeof program !== "string" || program === "") {
    throw new ParseError(`\`${key ?? "server"}\` has neither \`command\` nor \`url\`.`);
  }
  return { ...stdioServer(key || guessName([program, ...args]), program, args, env, rest), enabled };
}

function stdioServer(name, program, args, env, rest) {
  const values = Object.entries(env).map(([variable, value]) => [variable, { name: variable, value: String(value) }]);
  return {
    name,
    package: { package_type: "binary", identifier: program },
    transport: { type: "stdio" },
    ...(values.length > 0 && { env_vars: Object.fromEntries(values) }),
    config: { ...(args.length > 0 && { args }), ...rest },
  };
}

function httpServer(name, url, rest) {
  const config = Object.keys(rest).length > 0 ? { config: rest } : {};
  return { name, package: { package_type: "http", identifier: url }, transport: { type: "http", url }, ...config };
}

/** Derives a name from the package or host, without prefixes such as `mcp-` and `server-`. */
export function guessName(words) {
  const main = words.find((word) => !word.startsWith("-") && !LAUNCHERS.includes(word)) ?? words[0];
  const host = /^https?:\/\/([^/:]+)/.exec(main)?.[1];
  const parts = host?.split(".").filter((part) => !["www", "mcp", "api"].includes(part));
  const base = parts ? (parts.length > 1 ? parts.slice(0, -1).join("-") : parts[0]) : main.split(/[/\\]/).pop();
  const stem = base.replace(/@[^@]*$/, "").replace(/\.(js|mjs|py|sh|exe)$/, "");
  const short = stem
    .replace(/^(mcp-)?server-/, "")
    .replace(/^mcp-/, "")
    .replace(/-mcp(-server)?$|-server$/, "");
  return (short || stem || "server").replace(/[^A-Za-z0-9_-]/g, "-").slice(0, 40) || "server";
}

/** Removes comments and trailing commas from JSON. Strings stay as they are. */
export function stripComments(text) {
  const tokens = /("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[^]*?\*\//g;
  const bare = text.replace(tokens, (_all, string) => string ?? "");
  return bare.replace(/("(?:\\.|[^"\\])*")|,(?=\s*[}\]])/g, (_all, string) => string ?? "");
}
