// A daemon of its own and a browser of its own, both gone when the test is over.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { access, constants, mkdtemp, readFile, readdir, readlink, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** How long anything on the page may take. The machine may be busy. */
export const PATIENCE_MS = 30_000;

/** Starts the daemon on a temporary home: `{ addr, request(), link(), stop() }`. It finds programs in `folders` too. */
export async function startDaemon(program, folders) {
  const home = await mkdtemp(join(tmpdir(), "toolrack-dashboard-"));
  const env = { ...process.env, PATH: [...folders, process.env.PATH].join(":") };
  const child = spawn(program, [home], { stdio: ["ignore", "pipe", "inherit"], env });
  const ended = once(child, "exit");
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, "line"), ended.then(() => null)]);
  const addr = /^ready on (\S+)/.exec(first?.[0] ?? "")?.[1];
  if (addr === undefined) {
    throw new Error("the daemon did not start");
  }
  const token = (await readFile(join(home, "run", "daemon.token"), "utf8")).trim();
  const askDaemon = async (method, path, body) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const answer = await fetch(`http://${addr}${path}`, { method, headers, body: body && JSON.stringify(body) });
    if (!answer.ok) {
      throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    }
    return answer.status === 204 ? null : answer.json();
  };
  return {
    addr,
    request: askDaemon,
    link: async () => (await askDaemon("POST", "/api/daemon/link")).url,
    async stop() {
      child.kill("SIGTERM");
      const late = setTimeout(() => child.kill("SIGKILL"), 20_000);
      await ended;
      clearTimeout(late);
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** A way to the daemon that can be cut: `{ addr, cut(), mend(), stop() }`. What goes through it seems to come from here. */
export async function startDetour(addr) {
  let isCut = false;
  const server = createServer((incoming, answer) => {
    const headers = { ...incoming.headers, host: addr };
    if (headers.origin !== undefined) {
      headers.origin = `http://${addr}`;
    }
    const [host, port] = addr.split(":");
    const onward = request({ host, port, method: incoming.method, path: incoming.url, headers }, (answered) => {
      answer.writeHead(answered.statusCode, answered.headers);
      answered.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    incoming.pipe(onward);
  });
  server.on("connection", (socket) => (isCut ? socket.destroy() : null));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    addr: `127.0.0.1:${server.address().port}`,
    cut() {
      isCut = true;
      server.closeAllConnections();
    },
    mend() {
      isCut = false;
    },
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Where a program is, as a shell would find it. */
async function lookUp(name) {
  for (const folder of name.includes("/") ? [""] : (process.env.PATH ?? "").split(":")) {
    const path = join(folder, name);
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    ) {
      return path;
    }
  }
  throw new Error(`${name} is not installed`);
}

/** A browser with a fresh profile. */
export async function startBrowser(executablePath) {
  return chromium.launch({ executablePath: await lookUp(executablePath), args: FLAGS, timeout: 60_000 });
}

/** A page that remembers every complaint of the browser and every request that leaves the machine. */
export async function openPage(browser, addr, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints = [];
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      complaints.push(`${message.type()}: ${message.text()} ${message.location().url ?? ""}`);
    }
  });
  page.on("pageerror", (error) => complaints.push(`page error: ${error.stack}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.host !== addr) {
      complaints.push(`a request left the page: ${request.url()}`);
    }
  });
  return { context, page, complaints };
}

/** The processes below this one whose program has such a name. */
export async function descendants(name) {
  const parents = new Map();
  for (const pid of (await readdir("/proc")).filter((it) => /^\d+$/.test(it))) {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => null);
    if (stat !== null) {
      parents.set(Number(pid), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    }
  }
  const isOurs = (pid) => pid === process.pid || (parents.has(pid) && isOurs(parents.get(pid)));
  const found = [];
  for (const pid of parents.keys()) {
    const program = await readlink(`/proc/${pid}/exe`).catch(() => "");
    if (program.endsWith(`/${name}`) && isOurs(pid)) {
      found.push(pid);
    }
  }
  return found;
}

/** Asks again and again until the answer is yes. */
export async function eventually(what, ask) {
  const until = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await ask();
    if (answer) {
      return answer;
    }
    if (Date.now() > until) {
      throw new Error(`not in time: ${what}`);
    }
    await new Promise((done) => setTimeout(done, 50));
  }
}
