// Test harness: a temporary daemon, a browser, and a proxy that can be interrupted.

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
/** Timeout of each wait. Generous, for busy machines. */
export const TIMEOUT_MS = 30_000;

/** Starts a daemon on a temporary home, with `dirs` in its `PATH`: `{ addr, request(), link(), stop() }`. */
export async function startDaemon(program, dirs) {
  const home = await mkdtemp(join(tmpdir(), "toolrack-dashboard-"));
  const env = { ...process.env, PATH: [...dirs, process.env.PATH].join(":") };
  const child = spawn(program, [home], { stdio: ["ignore", "pipe", "inherit"], env });
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, "line"), exited.then(() => null)]);
  const addr = /^ready on (\S+)/.exec(first?.[0] ?? "")?.[1];
  if (addr === undefined) {
    throw new Error("the daemon did not start");
  }
  // The socket needs no key.
  const socketPath = join(home, "run", "daemon.sock");
  const sendRequest = async (method, path, body) => {
    const headers = { host: "localhost", "content-type": "application/json" };
    const outgoing = request({ socketPath, method, path, headers });
    outgoing.end(body === undefined ? undefined : JSON.stringify(body));
    const [response] = await once(outgoing, "response");
    const text = (await response.toArray()).join("");
    if (response.statusCode >= 300) {
      throw new Error(`${method} ${path}: ${response.statusCode} ${text}`);
    }
    return text === "" ? null : JSON.parse(text);
  };
  return {
    addr,
    request: sendRequest,
    link: async () => (await sendRequest("POST", "/api/daemon/link")).url,
    async stop() {
      child.kill("SIGTERM");
      const killTimer = setTimeout(() => child.kill("SIGKILL"), 20_000);
      await exited;
      clearTimeout(killTimer);
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** Reverse proxy that can be interrupted: `{ addr, interrupt(), restore(), stop() }`. It rewrites `Host` and `Origin`. */
export async function startProxy(addr) {
  let isInterrupted = false;
  const server = createServer((incoming, outgoing) => {
    const headers = { ...incoming.headers, host: addr };
    if (headers.origin !== undefined) {
      headers.origin = `http://${addr}`;
    }
    const [host, port] = addr.split(":");
    const upstream = request({ host, port, method: incoming.method, path: incoming.url, headers }, (response) => {
      outgoing.writeHead(response.statusCode, response.headers);
      response.pipe(outgoing);
    });
    upstream.on("error", () => outgoing.destroy());
    outgoing.on("close", () => upstream.destroy());
    incoming.pipe(upstream);
  });
  server.on("connection", (socket) => (isInterrupted ? socket.destroy() : null));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    addr: `127.0.0.1:${server.address().port}`,
    interrupt() {
      isInterrupted = true;
      server.closeAllConnections();
    },
    restore() {
      isInterrupted = false;
    },
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Finds a program in `PATH`. */
async function findProgram(name) {
  for (const dir of name.includes("/") ? [""] : (process.env.PATH ?? "").split(":")) {
    const path = join(dir, name);
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

/** Starts a browser with a fresh profile. */
export async function startBrowser(executablePath) {
  return chromium.launch({ executablePath: await findProgram(executablePath), args: FLAGS, timeout: 60_000 });
}

/** Opens a page that collects console errors and requests to other hosts in `errors`. */
export async function openPage(browser, addr, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const errors = [];
  page.setDefaultTimeout(TIMEOUT_MS);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      errors.push(`${message.type()}: ${message.text()} ${message.location().url ?? ""}`);
    }
  });
  page.on("pageerror", (error) => errors.push(`page error: ${error.stack}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.host !== addr) {
      errors.push(`request to another host: ${request.url()}`);
    }
  });
  return { context, page, errors };
}

/** Descendant processes that run the program `name`. */
export async function descendants(name) {
  const parents = new Map();
  for (const pid of (await readdir("/proc")).filter((entry) => /^\d+$/.test(entry))) {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => null);
    if (stat !== null) {
      parents.set(Number(pid), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    }
  }
  const isDescendant = (pid) => pid === process.pid || (parents.has(pid) && isDescendant(parents.get(pid)));
  const found = [];
  for (const pid of parents.keys()) {
    const program = await readlink(`/proc/${pid}/exe`).catch(() => "");
    if (program.endsWith(`/${name}`) && isDescendant(pid)) {
      found.push(pid);
    }
  }
  return found;
}

/** Polls until `probe` returns a truthy value, and returns it. */
export async function eventually(description, probe) {
  const deadline = Date.now() + TIMEOUT_MS;
  for (;;) {
    const result = await probe();
    if (result) {
      return result;
    }
    if (Date.now() > deadline) {
      throw new Error(`timed out: ${description}`);
    }
    await new Promise((done) => setTimeout(done, 50));
  }
}
