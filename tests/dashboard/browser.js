// The dashboard in a real browser, against a real daemon with real servers.
//
// node --test-reporter is not used: this is one story, told in steps, each of which says its name when it has passed.
// Usage: node browser.js DAEMON DEMO_SERVER CHROMIUM [PICTURES], where PICTURES is a folder for screenshots.

import assert from "node:assert/strict";
import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

import { descendants, eventually, openPage, startBrowser, startDaemon, startDetour } from "./harness.js";

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
let complaints;

const steps = [
  [
    "without a key the page says how to get one",
    async () => {
      await page.goto(`http://${daemon.addr}/`);
      await page.getByText("toolrack dashboard").waitFor();
      await audit("locked");
    },
  ],

  [
    "a link opens the page once, and leaves nothing in the address",
    async () => {
      const link = await daemon.link();
      await page.goto("about:blank");
      await page.goto(link);
      await page.getByText("No servers yet.").waitFor();
      await live();
      assert.ok(!page.url().includes("code"), page.url());
      const other = await openPage(context.browser(), daemon.addr, { viewport: WIDE });
      await other.page.goto(link);
      await other.page.getByText("This page has no key.").waitFor();
      await other.context.close();
      await audit("no servers");
    },
  ],

  [
    "a wrong addition says what is wrong",
    async () => {
      await page.getByRole("button", { name: "Add server" }).click();
      const text = page.getByLabel("Command line, URL or JSON");
      await text.fill("npx 'open");
      await page.getByText("is not closed").waitFor();
      await text.fill('{"mcpServers": {');
      await page.getByText("This is no JSON").waitFor();
      await audit("adding");
    },
  ],

  [
    "a server is added from its command line, and connects",
    async () => {
      await page.getByLabel("Command line, URL or JSON").fill(basename(demoServer));
      await page.getByLabel("Name", { exact: true }).fill("demo");
      await picture("add", ["light"]);
      await page.getByRole("dialog").getByRole("button", { name: "Add", exact: true }).click();
      await row("demo").getByText("Running").waitFor();
      await eventually("its tools are counted", async () => /\d+ tools/.test(await row("demo").textContent()));
    },
  ],

  [
    "another is added from the JSON of another tool, and its failure says what to do",
    async () => {
      await page.goto(`http://${daemon.addr}/#/servers`);
      await page.getByRole("button", { name: "Add server" }).click();
      const snippet = {
        mcpServers: { missing: { command: "no-such-program-anywhere", args: ["--x"], env: { A: "b" } } },
      };
      await page.getByLabel("Command line, URL or JSON").fill(JSON.stringify(snippet));
      await page.getByRole("dialog").getByRole("button", { name: "Add", exact: true }).click();
      await row("missing")
        .getByText(/Failed|Waiting|Crash-looping/)
        .waitFor();
      await page.locator(".detail .problem").getByText("no-such-program-anywhere").waitFor();
    },
  ],

  [
    "a tool is called from its form, and its text is shown",
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
    "an argument that is none is not sent",
    async () => {
      await page.goto(`http://${daemon.addr}/#/tools/demo_add`);
      await page.locator('[data-argument="a"]').fill("two");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("this is no number").waitFor();
      await page.locator('[data-argument="a"]').fill("2");
      await page.locator('[data-argument="b"]').fill("40");
      await page.getByRole("button", { name: "As JSON" }).click();
      assert.deepEqual(JSON.parse(await page.getByLabel("Arguments as JSON").inputValue()), { a: 2, b: 40 });
      await page.getByRole("button", { name: "Run" }).click();
      await page.locator(".output").getByText("42").waitFor();
    },
  ],

  [
    "calls are listed as they happen, one by one and in sum",
    async () => {
      const call = (tool, args) => daemon.request("POST", "/api/calls", { server: "demo", tool, arguments: args });
      await page.goto(`http://${daemon.addr}/#/calls`);
      await Promise.all([1, 2, 3].map((n) => call("greet", { name: `number ${n}` })));
      const slow = call("countdown", { from: 3 }).catch(() => null);
      await page.locator("tr.call[data-tone=busy]").first().waitFor();
      await Promise.all([4, 5].map((n) => call("add", { a: n, b: n })));
      await slow;
      await eventually(
        "no call is left running",
        async () => (await page.locator("tr.call[data-tone=busy]").count()) === 0,
      );
      await page.locator(".latency").getByText("countdown").waitFor();
      await page.getByLabel("Filter calls").fill("tool:countdown");
      await eventually("the filter leaves one", async () => (await page.locator("tr.call").count()) === 1);
      await page.getByLabel("Filter calls").fill("");
      await audit("calls");
      await picture("calls");
      await page.locator("tr.call a").first().click();
      await page.locator(".detail").getByText("Answered").waitFor();
      await audit("a call");
    },
  ],

  [
    "a picture is shown as one, and the error output as it comes",
    async () => {
      if (!hasEverything) {
        process.stdout.write("not shown: a picture, because `cargo xtask servers` did not install server-everything\n");
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
      const shown = page.getByRole("img", { name: "Picture 1" });
      await eventually("the browser can read it", () => shown.evaluate((it) => it.complete && it.naturalWidth > 0));
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
      await page.getByRole("button", { name: "Cancel the call" }).click();
      assert.match(await slow, /cancelled/);
      await page.locator(".detail").getByText("Abandoned").waitFor();
    },
  ],

  [
    "a page that was cut off goes on where it was",
    async () => {
      const detour = await startDetour(daemon.addr);
      const other = await openPage(context.browser(), detour.addr, { viewport: WIDE });
      try {
        const link = new URL(await daemon.link());
        await other.page.goto(`http://${detour.addr}/${link.hash}`);
        await other.page.locator("#live[data-state=live]").waitFor();
        await other.page.keyboard.press("3");
        await other.page.getByLabel("Filter calls").fill("tool:word_count");
        detour.cut();
        await other.page.locator("#live[data-state=lost]").waitFor();
        const call = { server: "demo", tool: "word_count", arguments: { text: "while nobody listened" } };
        await daemon.request("POST", "/api/calls", call);
        assert.equal(await other.page.locator("tr.call").count(), 0);
        const resumed = other.page.waitForRequest((it) => it.headers()["last-event-id"] !== undefined);
        detour.mend();
        await resumed;
        await other.page.locator("tr.call[data-tone=ok]").waitFor();
        await other.page.locator("#live[data-state=live]").waitFor();
      } finally {
        await other.context.close();
        detour.stop();
      }
    },
  ],
  [
    "a server that is killed comes back",
    async () => {
      await page.goto(`http://${daemon.addr}/#/servers/demo`);
      const launches = () => page.locator(".facts div", { hasText: "Launches" }).locator("dd").textContent();
      const before = Number(await launches());
      const [pid] = await eventually("the server has a process", async () => {
        const found = await descendants("demo-server");
        return found.length > 0 && found;
      });
      process.kill(pid, "SIGKILL");
      await eventually("it is another launch", async () => Number(await launches()) > before);
      await row("demo").getByText("Running").waitFor();
      const [now] = await eventually("it has a process again", async () => {
        const found = await descendants("demo-server");
        return found.length > 0 && found;
      });
      assert.notEqual(now, pid);
    },
  ],

  [
    "a server is switched off and on, restarted and its log read",
    async () => {
      const toggle = row("demo").getByRole("switch");
      await toggle.click();
      await row("demo").getByText("Disabled").waitFor();
      await toggle.click();
      await row("demo").getByText("Running").waitFor();
      await page.locator(".detail").getByRole("button", { name: "Restart" }).click();
      await page.getByText("demo was restarted.").waitFor();
      await page.locator(".tabs").getByText("Log").click();
      await page.getByText("Nothing was written").waitFor();
    },
  ],

  [
    "an edit is checked before it is saved",
    async () => {
      await page.locator(".tabs").getByText("Edit").click();
      const text = page.getByLabel("Config of this server");
      const config = JSON.parse(await text.inputValue());
      await text.fill(JSON.stringify({ ...config, name: "" }));
      await page.locator(".faults li").first().waitFor();
      assert.ok(await page.getByRole("button", { name: "Save" }).isDisabled());
      await audit("an edit with a fault");
      await text.fill(JSON.stringify({ ...config, config: { ...config.config, deny: ["dice"] } }, null, 2));
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByText("demo was saved.").waitFor();
      await page.goto(`http://${daemon.addr}/#/tools`);
      await eventually(
        "the denied tool is gone",
        async () => (await page.getByRole("link", { name: "dice" }).count()) === 0,
      );
    },
  ],

  [
    "a broken config shows its fault at its line, and is not saved",
    async () => {
      await page.goto(`http://${daemon.addr}/#/config`);
      const text = page.getByLabel("Config file");
      const sound = await eventually("the text is there", () => text.inputValue());
      await text.fill(`${sound}\n[[defaults.mcp]]\nname = "x"\ntimeout = "soon"\n`);
      await page.locator(".gutter [data-fault=error]").first().waitFor();
      await page.locator(".faults li").first().waitFor();
      assert.ok(await page.getByRole("button", { name: "Save" }).isDisabled());
      await audit("a broken config");
      await picture("config");
      await text.fill(`# mine\n${sound}`);
      await page.getByText("Sound, not saved").waitFor();
    },
  ],

  [
    "a file that somebody else changed is not overwritten unasked",
    async () => {
      const { text, generation } = await daemon.request("GET", "/api/config");
      await daemon.request("PUT", "/api/config", { text: `# theirs\n${text}`, generation });
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByText("changed by somebody else").waitFor();
      await page.locator(".diff .mine", { hasText: "# mine" }).waitFor();
      await page.locator(".diff .theirs", { hasText: "# theirs" }).waitFor();
      await audit("a conflict");
      await page.getByRole("button", { name: "Save mine over it" }).click();
      await page.getByText("Saved and in use").waitFor();
      assert.match((await daemon.request("GET", "/api/config")).text, /^# mine\n/);
    },
  ],

  [
    "a server is removed after a question",
    async () => {
      await page.goto(`http://${daemon.addr}/#/servers/missing`);
      await page.getByRole("button", { name: "Remove" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
      await eventually("it is gone", async () => (await row("missing").count()) === 0);
    },
  ],

  [
    "views are reached with keys, and dialogs closed",
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
      await audit("keys");
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    },
  ],

  [
    "a theme is chosen and kept",
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
    "every view fits a narrow screen",
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
    "the servers, as on the first page of the documents",
    async () => {
      await dress();
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

/** More servers for the picture: one that is off, one that fails, one of a kind that many have. */
async function dress() {
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
    .getByText(/Failed|Waiting|Crash-looping/)
    .waitFor();
}

/** Nothing that keeps people out, in both themes. */
async function audit(where) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const bad = violations.filter((it) => ["serious", "critical"].includes(it.impact));
    const told = bad.map(
      (it) => `${it.id}: ${it.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("\n")}`,
    );
    assert.deepEqual(told, [], `${where}, ${colorScheme}`);
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
      document.getElementById("notices").replaceChildren();
      document.activeElement?.blur();
    });
    const taken = await page.screenshot({ animations: "disabled", caret: "hide" });
    await writeFile(join(pictures, `dashboard-${name}-${colorScheme}.png`), taken);
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
    ({ context, page, complaints } = await openPage(browser, daemon.addr, { viewport: WIDE, reducedMotion: "reduce" }));
    for (const [name, act] of steps) {
      const began = Date.now();
      try {
        await act();
        assert.deepEqual(complaints.splice(0).filter(isUnexpected), [], "the browser complained");
      } catch (error) {
        await page.screenshot({ path: join(pictures ?? ".", "failure.png") }).catch(() => {});
        throw new Error(`${name}: ${error.stack}`, { cause: error });
      }
      process.stdout.write(`ok: ${name} (${Date.now() - began} ms)\n`);
    }
  } finally {
    await browser?.close();
    await daemon.stop();
  }
  assert.deepEqual(await descendants("demo-server"), [], "a server is left");
}

/** Chromium reports every refusal of the daemon as an error; those that a step provokes are expected. */
function isUnexpected(complaint) {
  return !/the server responded with a status of (401|404|409|422|424|502|503)/i.test(complaint);
}

await main();
