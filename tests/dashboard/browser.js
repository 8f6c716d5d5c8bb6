// End-to-end test of the dashboard in Chromium, against a daemon with real servers.
//
// The steps depend on each other, so this is one script and not a `node --test` suite.
// Usage: node browser.js DAEMON DEMO_SERVER CHROMIUM [PICTURES], where PICTURES is a directory for screenshots.

import assert from "node:assert/strict";
import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

import { descendants, eventually, openPage, startBrowser, startDaemon, startProxy } from "./harness.js";

const [daemonProgram, demoServer, chromium, pictures] = process.argv.slice(2);
const nodeServers = fileURLToPath(new URL("../servers/node/node_modules/.bin", import.meta.url));
const hasEverything = await access(join(nodeServers, "mcp-server-everything")).then(
  () => true,
  () => false,
);
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 360, height: 740 };

let daemon;
let page;
let context;
let errors;

const steps = [
  [
    "without a token the page explains how to log in",
    async () => {
      await page.goto(`http://${daemon.addr}/`);
      await page.getByText("toolrack dashboard").waitFor();
      await audit("locked");
    },
  ],

  [
    "a login link works once and leaves no code in the URL",
    async () => {
      const link = await daemon.link();
      await page.goto("about:blank");
      await page.goto(link);
      await page.getByText("No servers yet.").waitFor();
      await live();
      assert.ok(!page.url().includes("code"), page.url());
      const other = await openPage(context.browser(), daemon.addr, { viewport: WIDE });
      await other.page.goto(link);
      await other.page.getByText("You are not logged in.").waitFor();
      await other.context.close();
      await audit("no servers");
    },
  ],

  [
    "invalid input for a new server shows an error",
    async () => {
      await page.getByRole("button", { name: "Add server" }).click();
      const text = page.getByLabel("Command line, URL or JSON");
      await text.fill("npx 'open");
      await page.getByText("Unclosed quote").waitFor();
      await text.fill('{"mcpServers": {');
      await page.getByText("Invalid JSON").waitFor();
      await audit("adding");
    },
  ],

  [
    "a server is added from a command line and connects",
    async () => {
      await page.getByLabel("Command line, URL or JSON").fill(basename(demoServer));
      await page.getByLabel("Name", { exact: true }).fill("demo");
      await picture("add", ["light"]);
      await page.getByRole("dialog").getByRole("button", { name: "Add", exact: true }).click();
      await row("demo").getByText("Running").waitFor();
      await eventually("its tool count is shown", async () => /\d+ tools/.test(await row("demo").textContent()));
    },
  ],

  [
    "a server is added from a JSON snippet and its failure is explained",
    async () => {
      await page.goto(`http://${daemon.addr}/#/servers`);
      await page.getByRole("button", { name: "Add server" }).click();
      const snippet = {
        mcpServers: { missing: { command: "no-such-program-anywhere", args: ["--x"], env: { A: "b" } } },
      };
      await page.getByLabel("Command line, URL or JSON").fill(JSON.stringify(snippet));
      await page.getByRole("dialog").getByRole("button", { name: "Add", exact: true }).click();
      await row("missing")
        .getByText(/Failed|Retrying|Crash loop/)
        .waitFor();
      await page.locator(".detail .problem").getByText("no-such-program-anywhere").waitFor();
    },
  ],

  [
    "a tool is called from its form and its result is shown",
    async () => {
      await page.goto(`http://${daemon.addr}/#/tools`);
      await page.keyboard.press("/");
      await page.keyboard.type("greet");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await page.locator('[data-argument="name"]').fill("Ada <b>&amp;</b>");
      await page.keyboard.press("Control+Enter");
      await page.locator("[data-part=outcome]").getByText("Ada <b>&amp;</b>").waitFor();
      await page.getByRole("tab", { name: "JSON" }).click();
      await page.locator(".output").getByText('"content"').waitFor();
      await page.getByRole("tab", { name: "Text" }).click();
      await audit("a tool");
      await picture("tools");
    },
  ],

  [
    "invalid arguments are not sent",
    async () => {
      await page.goto(`http://${daemon.addr}/#/tools/demo_add`);
      await page.locator('[data-argument="a"]').fill("two");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("must be a number").waitFor();
      await page.locator('[data-argument="a"]').fill("2");
      await page.locator('[data-argument="b"]').fill("40");
      await page.getByRole("button", { name: "Edit as JSON" }).click();
      assert.deepEqual(JSON.parse(await page.getByLabel("Arguments as JSON").inputValue()), { a: 2, b: 40 });
      await page.getByRole("button", { name: "Run" }).click();
      await page.locator(".output").getByText("42").waitFor();
    },
  ],

  [
    "calls are listed live, with latencies",
    async () => {
      const call = (tool, args) => daemon.request("POST", "/api/calls", { server: "demo", tool, arguments: args });
      await page.goto(`http://${daemon.addr}/#/calls`);
      await Promise.all([1, 2, 3].map((n) => call("greet", { name: `number ${n}` })));
      const slow = call("countdown", { from: 3 }).catch(() => null);
      await page.locator("tr.call[data-tone=busy]").first().waitFor();
      await Promise.all([4, 5].map((n) => call("add", { a: n, b: n })));
      await slow;
      await eventually(
        "no call is running",
        async () => (await page.locator("tr.call[data-tone=busy]").count()) === 0,
      );
      await page.locator(".latency").getByText("countdown").waitFor();
      await page.getByLabel("Filter calls").fill("tool:countdown");
      await eventually("the filter matches one call", async () => (await page.locator("tr.call").count()) === 1);
      await page.getByLabel("Filter calls").fill("");
      await audit("calls");
      await picture("calls");
      await page.locator("tr.call a").first().click();
      await page.locator(".detail").getByText("Answered").waitFor();
      await audit("a call");
    },
  ],

  [
    "images are rendered and the log is followed",
    async () => {
      if (!hasEverything) {
        process.stdout.write("skipped: images, because server-everything is missing; run `cargo xtask servers`\n");
        return;
      }
      const config = {
        package: { package_type: "binary", identifier: "mcp-server-everything" },
        transport: { type: "stdio" },
      };
      await daemon.request("POST", "/api/servers", { name: "everything", ...config });
      await page.goto(`http://${daemon.addr}/#/servers/everything/log`);
      await page.locator(".log li").first().waitFor();
      await row("everything").getByText("Running").waitFor();
      await page.goto(`http://${daemon.addr}/#/tools/everything_get-tiny-image`);
      await page.getByRole("button", { name: "Run" }).click();
      const image = page.getByRole("img", { name: "Image 1" });
      await eventually("the image is decoded", () => image.evaluate(({ complete, naturalWidth }) => complete && naturalWidth > 0));
      await picture("image", ["light"]);
      await page.goto(`http://${daemon.addr}/#/calls`);
    },
  ],

  [
    "a call can be cancelled",
    async () => {
      const slow = daemon
        .request("POST", "/api/calls", { server: "demo", tool: "countdown", arguments: { from: 20 } })
        .catch(String);
      await page.locator("tr.call[data-tone=busy] a").first().click();
      await page.getByRole("button", { name: "Cancel call" }).click();
      assert.match(await slow, /cancelled/);
      await page.locator(".detail").getByText("Cancelled").waitFor();
    },
  ],

  [
    "an interrupted event stream is resumed",
    async () => {
      const proxy = await startProxy(daemon.addr);
      const other = await openPage(context.browser(), proxy.addr, { viewport: WIDE });
      try {
        const link = new URL(await daemon.link());
        await other.page.goto(`http://${proxy.addr}/${link.hash}`);
        await other.page.locator("#live[data-state=live]").waitFor();
        await other.page.keyboard.press("3");
        await other.page.getByLabel("Filter calls").fill("tool:word_count");
        proxy.interrupt();
        await other.page.locator("#live[data-state=lost]").waitFor();
        const call = { server: "demo", tool: "word_count", arguments: { text: "while the stream was down" } };
        await daemon.request("POST", "/api/calls", call);
        assert.equal(await other.page.locator("tr.call").count(), 0);
        const resumed = other.page.waitForRequest((request) => request.headers()["last-event-id"] !== undefined);
        proxy.restore();
        await resumed;
        await other.page.locator("tr.call[data-tone=ok]").waitFor();
        await other.page.locator("#live[data-state=live]").waitFor();
      } finally {
        await other.context.close();
        proxy.stop();
      }
    },
  ],
  [
    "a killed server is restarted",
    async () => {
      await page.goto(`http://${daemon.addr}/#/servers/demo`);
      const launches = () => page.locator(".facts div", { hasText: "Launches" }).locator("dd").textContent();
      const before = Number(await launches());
      const [pid] = await eventually("the server has a process", async () => {
        const found = await descendants("demo-server");
        return found.length > 0 && found;
      });
      process.kill(pid, "SIGKILL");
      await eventually("the server was launched again", async () => Number(await launches()) > before);
      await row("demo").getByText("Running").waitFor();
      const [now] = await eventually("the server has a new process", async () => {
        const found = await descendants("demo-server");
        return found.length > 0 && found;
      });
      assert.notEqual(now, pid);
    },
  ],

  [
    "a server is disabled, enabled and restarted",
    async () => {
      const toggle = row("demo").getByRole("switch");
      await toggle.click();
      await row("demo").getByText("Disabled").waitFor();
      await toggle.click();
      await row("demo").getByText("Running").waitFor();
      await page.locator(".detail").getByRole("button", { name: "Restart" }).click();
      await page.getByText("demo restarted.").waitFor();
      await page.locator(".tabs").getByText("Log").click();
      await page.getByText("No log output yet").waitFor();
    },
  ],

  [
    "a server config is validated before it is saved",
    async () => {
      await page.locator(".tabs").getByText("Edit").click();
      const text = page.getByLabel("Server config");
      const config = JSON.parse(await text.inputValue());
      await text.fill(JSON.stringify({ ...config, name: "" }));
      await page.locator(".diagnostics li").first().waitFor();
      assert.ok(await page.getByRole("button", { name: "Save" }).isDisabled());
      await audit("server config with an error");
      await text.fill(JSON.stringify({ ...config, config: { ...config.config, deny: ["dice"] } }, null, 2));
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByText("demo saved.").waitFor();
      await page.goto(`http://${daemon.addr}/#/tools`);
      await eventually(
        "the denied tool is gone",
        async () => (await page.getByRole("link", { name: "dice" }).count()) === 0,
      );
    },
  ],

  [
    "an invalid config shows errors at their lines and cannot be saved",
    async () => {
      await page.goto(`http://${daemon.addr}/#/config`);
      const text = page.getByLabel("Config file");
      const valid = await eventually("the text is loaded", () => text.inputValue());
      await text.fill(`${valid}\n[[defaults.mcp]]\nname = "x"\ntimeout = "soon"\n`);
      await page.locator(".gutter [data-severity=error]").first().waitFor();
      await page.locator(".diagnostics li").first().waitFor();
      assert.ok(await page.getByRole("button", { name: "Save" }).isDisabled());
      await audit("invalid config");
      await picture("config");
      await text.fill(`# mine\n${valid}`);
      await page.getByText("Valid, not saved").waitFor();
    },
  ],

  [
    "a config that changed on disk is not overwritten without confirmation",
    async () => {
      const { text, generation } = await daemon.request("GET", "/api/config");
      await daemon.request("PUT", "/api/config", { text: `# theirs\n${text}`, generation });
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByText("changed on disk").waitFor();
      await page.locator(".diff .mine", { hasText: "# mine" }).waitFor();
      await page.locator(".diff .theirs", { hasText: "# theirs" }).waitFor();
      await audit("a conflict");
      await page.getByRole("button", { name: "Overwrite" }).click();
      await page.getByText("Saved and active").waitFor();
      assert.match((await daemon.request("GET", "/api/config")).text, /^# mine\n/);
    },
  ],

  [
    "a server is removed after confirmation",
    async () => {
      await page.goto(`http://${daemon.addr}/#/servers/missing`);
      await page.getByRole("button", { name: "Remove" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
      await eventually("the server is removed", async () => (await row("missing").count()) === 0);
    },
  ],

  [
    "keyboard shortcuts switch views and close dialogs",
    async () => {
      for (const [key, title] of [
        ["2", "Tools"],
        ["3", "Calls"],
        ["4", "Config"],
        ["1", "Servers"],
      ]) {
        await page.locator("main").focus();
        await page.keyboard.press(key);
        await page.getByRole("heading", { level: 1, name: title }).waitFor();
      }
      await page.keyboard.press("?");
      await page.getByRole("dialog").waitFor();
      await audit("keyboard shortcuts");
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    },
  ],

  [
    "the theme is saved",
    async () => {
      const theme = () => page.evaluate(() => document.documentElement.dataset.theme ?? "auto");
      await page.getByRole("button", { name: /Theme/ }).click();
      assert.equal(await theme(), "light");
      await page.getByRole("button", { name: /Theme/ }).click();
      await page.reload();
      assert.equal(await theme(), "dark");
      await page.getByRole("button", { name: /Theme/ }).click();
      assert.equal(await theme(), "auto");
    },
  ],

  [
    "all views fit a narrow screen",
    async () => {
      await page.setViewportSize(NARROW);
      for (const view of ["servers", "servers/demo", "tools", "tools/demo_greet", "calls", "config"]) {
        await page.goto(`http://${daemon.addr}/#/${view}`);
        await live();
        const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        assert.ok(inner <= outer, `${view} is ${inner} px wide on a screen of ${outer} px`);
        await audit(`${view}, narrow`);
      }
      await page.goto(`http://${daemon.addr}/#/servers`);
      await picture("servers-narrow", ["light"], NARROW);
      await page.setViewportSize(WIDE);
    },
  ],

  [
    "screenshots of the servers view",
    async () => {
      await addSampleServers();
      await page.goto(`http://${daemon.addr}/#/servers`);
      await eventually("memory is shown", async () => /[KM]iB/.test(await row("demo").textContent()));
      await picture("servers");
      await page.goto(`http://${daemon.addr}/#/servers/demo`);
      await page.locator(".chips a").first().waitFor();
      await picture("server");
      await audit("servers");
    },
  ],
];

const row = (name) => page.locator(".servers .row").filter({ has: page.getByRole("link", { name, exact: true }) });
const live = () => page.locator("#live[data-state=live]").waitFor();

/** Adds servers for the screenshots: a disabled one and a failing one. */
async function addSampleServers() {
  const binary = (name, identifier, args, more) =>
    daemon.request("POST", "/api/servers", {
      name,
      package: { package_type: "binary", identifier },
      transport: { type: "stdio" },
      config: { args },
      ...more,
    });
  await binary("github", "docker", ["run", "-i", "--rm", "ghcr.io/github/github-mcp-server"], { enabled: false });
  await binary("postgres", "mcp-server-postgres", ["postgresql://localhost/shop"], {});
  await row("postgres")
    .getByText(/Failed|Retrying|Crash loop/)
    .waitFor();
}

/** Accessibility audit with axe-core, in both themes. */
async function audit(where) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const bad = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    const findings = bad.map(
      ({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join("\n")}`,
    );
    assert.deepEqual(findings, [], `${where}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: null });
}

async function picture(name, themes = ["light", "dark"], size = WIDE) {
  if (pictures === undefined) {
    return;
  }
  await page.setViewportSize(size);
  for (const colorScheme of themes) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(() => {
      document.getElementById("toasts").replaceChildren();
      document.activeElement?.blur();
    });
    const screenshot = await page.screenshot({ animations: "disabled", caret: "hide" });
    await writeFile(join(pictures, `dashboard-${name}-${colorScheme}.png`), screenshot);
  }
  await page.emulateMedia({ colorScheme: null });
}

async function main() {
  if (pictures !== undefined) {
    await mkdir(pictures, { recursive: true });
  }
  daemon = await startDaemon(daemonProgram, [dirname(demoServer), nodeServers]);
  let browser = null;
  try {
    browser = await startBrowser(chromium);
    ({ context, page, errors } = await openPage(browser, daemon.addr, { viewport: WIDE, reducedMotion: "reduce" }));
    for (const [name, run] of steps) {
      const started = Date.now();
      try {
        await run();
        assert.deepEqual(errors.splice(0).filter(isUnexpected), [], "browser errors");
      } catch (error) {
        await page.screenshot({ path: join(pictures ?? ".", "failure.png") }).catch(() => {});
        throw new Error(`${name}: ${error.stack}`, { cause: error });
      }
      process.stdout.write(`ok: ${name} (${Date.now() - started} ms)\n`);
    }
  } finally {
    await browser?.close();
    await daemon.stop();
  }
  assert.deepEqual(await descendants("demo-server"), [], "a server process is left");
}

/** Chromium logs every error response; those that a step provokes are expected. */
function isUnexpected(error) {
  return !/the server responded with a status of (401|404|409|422|424|502|503)/i.test(error);
}

await main();
