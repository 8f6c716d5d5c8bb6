// Unit tests of the pure dashboard modules, without a browser: `node --test unit.js`.

import assert from "node:assert/strict";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

// The assets have no package.json, so Node would not load them as modules.
const copy = await mkdtemp(join(tmpdir(), "dashboard-unit-"));
await cp(new URL("../../crates/toolrack-daemon/assets", import.meta.url), copy, { recursive: true });
await writeFile(join(copy, "package.json"), '{"type": "module"}');
after(() => rm(copy, { recursive: true }));

const { guessName, joinWords, parseServers, splitWords, stripComments } = await import(join(copy, "server-parser.js"));
const { bytes, duration, tick } = await import(join(copy, "format.js"));
const { diffLines } = await import(join(copy, "diff.js"));
const { formField, formatValue, parseValue } = await import(join(copy, "schema.js"));
const { callMatches, findTools, parseQuery } = await import(join(copy, "search.js"));
const { EventReader } = await import(join(copy, "sse.js"));
const { commandOrUrl, describeStatus } = await import(join(copy, "status.js"));
const { compactJson, prettyJson, sanitize } = await import(join(copy, "sanitize.js"));
const { axisTicks, callBar, timeAxis } = await import(join(copy, "timeline.js"));

test("splitWords follows shell quoting", () => {
  const check = (text, expected) => assert.deepEqual(splitWords(text), expected);
  check("npx -y server", ["npx", "-y", "server"]);
  check(`a 'b c' "d \\" e" f\\ g ''`, ["a", "b c", 'd " e', "f g", ""]);
  check("a \\\n  b", ["a", "b"]);
  check("  ", []);
  for (const text of ["a | b", "a && b", "a > b", "echo `b`"]) {
    assert.throws(() => splitWords(text), /shell/);
  }
  assert.throws(() => splitWords("a 'b"), /Unclosed quote/);
});

test("splitWords inverts joinWords", () => {
  for (const words of [["a"], ["a b", "c'd", '"', "$X", "", "|"], ["--x=1", "/tmp/ü"]]) {
    assert.deepEqual(splitWords(joinWords(words)), words);
  }
});

test("commands, URLs and JSON snippets are parsed", () => {
  const check = (text, name, expected) => {
    const { configs } = parseServers(text, name);
    const brief = configs.map((server) => [
      server.name,
      server.transport.url ?? server.package.identifier,
      server.config?.args ?? [],
    ]);
    assert.deepEqual(brief, expected);
  };
  check("npx -y @modelcontextprotocol/server-everything", "", [
    ["everything", "npx", ["-y", "@modelcontextprotocol/server-everything"]],
  ]);
  check("$ uvx mcp-server-time --utc", "clock", [["clock", "uvx", ["mcp-server-time", "--utc"]]]);
  check("https://mcp.sentry.io/mcp", "", [["sentry", "https://mcp.sentry.io/mcp", []]]);
  check('{"mcpServers": {"a": {"command": "x", "args": ["1"]}, "b": {"url": "http://h/"}}}', "", [
    ["a", "x", ["1"]],
    ["b", "http://h/", []],
  ]);
  check('{"servers": {"v": {"type": "http", "url": "http://v/"}}}', "", [["v", "http://v/", []]]);
  check('"a": {"command": "x"},', "", [["a", "x", []]]);
  check('{"command": ["x", "y"]}', "given", [["given", "x", ["y"]]]);
  check('{"context_servers": {"z": {"command": {"path": "p", "args": ["q"]}}}}', "", [["z", "p", ["q"]]]);
  check('// a note\n{"a": {"command": "x // no note",},}', "", [["a", "x // no note", []]]);
  for (const text of ["", "{", "[]", "{}", '{"a": 1}', '{"a": {}}', "A=1"]) {
    assert.throws(
      () => parseServers(text, ""),
      (error) => error.message.length > 10,
      text,
    );
  }
});

test("variables, headers and flags are kept, and ignored keys are noted", () => {
  const [plain] = parseServers("TOKEN=a=b DEBUG= run it", "").configs;
  assert.deepEqual(plain.env_vars.TOKEN, { name: "TOKEN", value: "a=b" });
  assert.equal(plain.env_vars.DEBUG.value, "");
  const text = '{"a": {"url": "http://h/", "headers": {"X": "1"}, "disabled": true, "autoApprove": []}}';
  const { configs, notes } = parseServers(text, "");
  assert.deepEqual([configs[0].config.headers, configs[0].enabled], [{ X: "1" }, false]);
  assert.match(notes[0], /autoApprove/);
});

test("names are derived from package or host", () => {
  const check = (words, expected) => assert.equal(guessName(words), expected);
  check(["npx", "-y", "@scope/mcp-server-git@1.2.3"], "git");
  check(["docker", "run", "--rm", "ghcr.io/x/y-mcp"], "y");
  check(["/usr/bin/my server.py"], "my-server");
  check(["python3", "server.py"], "server");
  check(["http://localhost:3000/mcp"], "localhost");
});

test("comments and trailing commas are removed outside of strings", () => {
  const check = (text, expected) => assert.deepEqual(JSON.parse(stripComments(text)), expected);
  check('{"a": 1, // x\n "b": [1, /* y */ 2,],}', { a: 1, b: [1, 2] });
  check('{"u": "http://h//x", "c": ",}", "q": "\\"//"}', { u: "http://h//x", c: ",}", q: '"//' });
});

test("SSE is parsed from chunks of any size", () => {
  const text =
    ': hello\n\nevent: state\nid: r-1\ndata: {"a":\ndata: 1}\n\nid: r-2\r\ndata: x\r\n\r\ndata: unfinished\n';
  for (let size = 1; size <= text.length; size += 1) {
    const reader = new EventReader();
    const events = [];
    for (let start = 0; start < text.length; start += size) {
      events.push(...reader.feed(text.slice(start, start + size)));
    }
    assert.deepEqual(
      events,
      [
        { type: "state", data: '{"a":\n1}' },
        { type: "message", data: "x" },
      ],
      `chunks of ${size}`,
    );
    assert.equal(reader.lastId, "r-2");
  }
});

test("schemas map to form fields", () => {
  const check = (schema, expected) => assert.equal(formField(schema).kind, expected, JSON.stringify(schema));
  check({ type: "string" }, "text");
  check({ type: ["integer", "null"] }, "integer");
  check({ anyOf: [{ type: "number" }, { type: "null" }] }, "number");
  check({ type: "boolean" }, "flag");
  check({ enum: ["a", 1] }, "choice");
  check({ const: "a" }, "choice");
  check({ type: "array", items: { type: "string" } }, "list");
  check({ type: "array", items: { type: "object" } }, "json");
  check({ type: "object" }, "json");
  check({ type: "object", properties: {} }, "group");
  check({ oneOf: [{ type: "string" }, { type: "number" }] }, "json");
  check(true, "json");
  check({}, "json");
});

test("references are resolved, and cycles terminate", () => {
  const schema = {
    type: "object",
    properties: { n: { $ref: "#/$defs/n" } },
    $defs: { n: { type: "object", properties: { n: { $ref: "#/$defs/n" } } } },
  };
  assert.equal(formField(schema).fields[0].kind, "group");
  assert.equal(formField({ $ref: "#/nowhere" }).kind, "json");
});

test("input is parsed to a value or an error", () => {
  const check = (schema, typed, expected) => {
    const result = parseValue(formField(schema, "x", true), typed);
    assert.deepEqual(result.error === undefined ? result.value : "error", expected, `${JSON.stringify(schema)} ${typed}`);
  };
  check({ type: "string" }, " a ", " a ");
  check({ type: "string" }, "", "");
  check({ type: "integer" }, "7", 7);
  check({ type: "integer" }, "7.5", "error");
  check({ type: "number" }, "1e3", 1000);
  check({ type: "number" }, "x", "error");
  check({ type: "number" }, "", "error");
  check({ type: "boolean" }, "false", false);
  check({ enum: ["a", 1] }, "1", 1);
  check({ type: "array", items: { type: "integer" } }, "1\n 2 \n", [1, 2]);
  check({ type: "array", items: { type: "integer" } }, "1\nx", "error");
  check({}, '{"a": 1}', { a: 1 });
  check({}, "{", "error");
  assert.deepEqual(parseValue(formField({ type: "integer" }, "x", false), " "), {});
  for (const [schema, value] of [
    [{ enum: ["a", null, 3] }, 3],
    [{ type: "array", items: { type: "string" } }, ["a", "b"]],
    [{}, { a: [1] }],
  ]) {
    const field = formField(schema);
    assert.deepEqual(parseValue(field, formatValue(field, value)).value, value);
  }
});

test("tools match all terms, names first", () => {
  const tool = (server, raw_name, description) => ({ server, raw_name, name: `${server}_${raw_name}`, description });
  const tools = [
    tool("fs", "list", "reads files"),
    tool("fs", "read_file", "gives text"),
    tool("web", "get", "reads a page"),
  ];
  const check = (query, expected) =>
    assert.deepEqual(
      findTools(tools, query).map((found) => found.raw_name),
      expected,
      query,
    );
  check("", ["list", "read_file", "get"]);
  check("read", ["read_file", "list", "get"]);
  check("READ server:fs", ["read_file", "list"]);
  check("server:f", []);
  check("tool:read", ["read_file"]);
  check("nothing", []);
});

test("calls are filtered by query and outcome", () => {
  const call = { server: "fs", tool: "list", outcome: "done", id: "r-1" };
  const check = (query, outcome, expected) =>
    assert.equal(callMatches(call, parseQuery(query), outcome), expected, `${query} ${outcome}`);
  check("", "", true);
  check("fs list", "done", true);
  check("web", "", false);
  check("tool:fs", "", false);
  check("", "unsuccessful", false);
  check("", "running", false);
  assert.equal(callMatches({ ...call, outcome: null }, [], "running"), true);
});

test("every phase has a label and an action", () => {
  const check = (phase, enabled, expected, more) => {
    const status = { status: { state: "x" }, phase, problem: null, ...more };
    const { label, tone, action } = describeStatus({ config: { name: "s", enabled }, status }, 0);
    assert.deepEqual([label, tone, action.verb], expected);
  };
  check("connected", true, ["Running", "ok", "open"]);
  check("connected", false, ["Disabled", "off", "enable"]);
  check("needs-auth", true, ["Login required", "warn", "login"]);
  check("backing-off", true, ["Retrying", "bad", "restart"], { retry_in_ms: 3000 });
  check("backing-off", true, ["Crash loop", "bad", "restart"], { retry_in_ms: 3000, is_crash_looping: true });
  check("failed", true, ["Failed", "bad", "restart"]);
  check("disconnected", true, ["Stopped", "off", "start"]);
  check("connecting", true, ["Connecting", "busy", "stop"]);
  check("connecting", true, ["Connecting", "busy", "stop"]);
});

test("a server is shown by its command or URL", () => {
  const check = (config, expected) => assert.equal(commandOrUrl(config), expected);
  const stdio = { type: "stdio" };
  check(
    { package: { package_type: "binary", identifier: "npx" }, transport: stdio, config: { args: ["-y", "x"] } },
    "npx -y x",
  );
  check({ package: { package_type: "pypi", identifier: "p", version: "1" }, transport: stdio }, "pypi:p@1");
  check(
    { package: { package_type: "http", identifier: "u" }, transport: { type: "http", url: "http://h/" } },
    "http://h/",
  );
});

test("durations, sizes and ticks are formatted", () => {
  const times = [
    [0, "0 µs"],
    [840, "840 µs"],
    [1400, "1.4 ms"],
    [12_400, "12 ms"],
    [999_499, "999 ms"],
    [999_600, "1.0 s"],
    [61_000_000, "1 min 1 s"],
  ];
  for (const [us, expected] of times) {
    assert.equal(duration(us), expected);
  }
  assert.deepEqual(
    [bytes(0), bytes(1023), bytes(1536), bytes(12 * 1024 * 1024)],
    ["0 B", "1023 B", "1.5 KiB", "12 MiB"],
  );
  assert.deepEqual([tick(100, 4), tick(1000, 4), tick(7, 4)], [50, 500, 2]);
});

test("the time axis shows the latest burst only", () => {
  const call = (started_ms, ms) => ({ started_ms, duration_us: ms === null ? null : ms * 1000 });
  const calls = [call(1_000_100, null), call(1_000_000, 50), call(1000, 5)];
  const axis = timeAxis(calls, 1_000_200);
  assert.equal(axis.from, 1_000_000);
  assert.ok(axis.to >= 1_000_200 && axis.to < 1_000_220);
  assert.equal(callBar(calls[2], axis, 1_000_200), null);
  const bar = callBar(calls[1], axis, 1_000_200);
  assert.equal(bar.left, 0);
  assert.ok(bar.width > 20 && bar.width < 26);
  assert.ok(axisTicks(axis, 4).length >= 2 && axisTicks(axis, 4).length <= 6);
});

test("diff shows changes with context", () => {
  const text = (lines) => lines.join("\n");
  const before = text(["a", "b", "c", "d", "e", "f", "g", "h"]);
  const after = text(["a", "b", "c", "d", "X", "f", "g", "h", "i"]);
  const shown = diffLines(before, after).map(({ sign, line }) => `${sign}${line}`);
  assert.deepEqual(shown, ["…", " c", " d", "-e", "+X", " f", " g", " h", "+i"]);
  assert.deepEqual(diffLines("a", "a"), [{ sign: "…", line: "" }]);
});

test("invisible characters are removed, joiners in words and emoji stay", () => {
  const check = (text, expected) => assert.equal(sanitize(text), expected);
  check("one\n\ttwo ü 漢字", "one\n\ttwo ü 漢字");
  check("\u001b[31mred\u001b[0m \u001b]0;title\u0007after", "red after");
  check("\u001b]8;;http://x\u001b\\link \u001b]never ends\ntext", "link \ntext");
  check("a\u009b31m\u0007\u007f dos\r\nmac\rend", "a31m dos\nmac\nend");
  check("x\u202ey\u200bz\u{e0041}\u00ad\u061c\u180e\u115f\u3164\uffa0\ufeff", "xyz");
  check("❤\ufe0f\u200d🔥 1\ufe0f\u20e3 می\u200cخواهم", "❤\ufe0f\u200d🔥 1\ufe0f\u20e3 می\u200cخواهم");
  check("❤\ufe0f\ufe0f a\ufe0f\ufe01 git\u200d", "❤\ufe0f a git");
});

test("JSON is formatted at any depth", () => {
  for (const value of [{ a: [1, 2.5, {}], b: { c: null, d: [] }, "e\n": "x\"y" }, [], "text", 7, null, [[]]]) {
    assert.equal(prettyJson(value), JSON.stringify(value, null, 2));
    assert.equal(compactJson(value), JSON.stringify(value));
  }
  const hidden = "a\u202e\u{e0041}b\u001b";
  assert.equal(prettyJson(hidden), '"a\\u202e\\udb40\\udc41b\\u001b"');
  assert.equal(JSON.parse(prettyJson(hidden)), hidden);
  const text = `${"[".repeat(100_000)}1${"]".repeat(100_000)}`;
  assert.equal(prettyJson(JSON.parse(text)), text);
});
