// What the page knows: servers, tools and calls, kept up to date by events.
//
// Events about servers and tools only say that something is different; what it is now is asked for. Events about calls
// are taken as they are, because there can be thousands.

import { ask, listen } from "./api.js";

/** Calls that are shown at the most. */
const MAX_CALLS = 1000;
/** Lines of a log that are shown at the most. */
const MAX_LINES = 500;

/** Everything that is shown, as the daemon last told it. */
export const known = {
  servers: null,
  /** When that was. */
  servers_at: 0,
  tools: null,
  /** Newest first, those under way among them: `{id, server, tool, started_ms, duration_us, outcome, delivery}`. */
  calls: [],
  latencies: [],
  /** Lines of the error output by server name. */
  logs: new Map(),
  live: "connecting",
  /** Why the config file was last rejected. */
  rejected: null,
};

const watchers = new Set();
let isTelling = false;

/** Calls `watcher` soon after something has changed. Gives back how to stop that. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

function changed() {
  if (isTelling) {
    return;
  }
  isTelling = true;
  setTimeout(() => {
    isTelling = false;
    for (const watcher of watchers) {
      watcher();
    }
  }, 40);
}

/** Asks for something, at most one request at a time; asked for while one is under way means once more afterwards. */
function refresher(load) {
  let underWay = null;
  let again = false;
  return async function refresh() {
    if (underWay !== null) {
      again = true;
      return underWay;
    }
    underWay = (async () => {
      do {
        again = false;
        await load().catch(() => {});
      } while (again);
      underWay = null;
      changed();
    })();
    return underWay;
  };
}

export const refreshServers = refresher(async () => {
  known.servers = (await ask("GET", "/api/servers")).servers;
  known.servers_at = Date.now();
});

export const refreshTools = refresher(async () => {
  known.tools = (await ask("GET", "/api/tools")).tools;
});

export const refreshLatencies = refresher(async () => {
  known.latencies = (await ask("GET", "/api/latencies")).latencies;
});

const refreshCalls = refresher(async () => {
  const { running, calls } = await ask("GET", "/api/calls?limit=200");
  const fresh = [...running.map(underWay), ...calls.map(over)];
  const ids = new Set(fresh.map((it) => it.id));
  known.calls = sorted([...fresh, ...known.calls.filter((it) => !ids.has(it.id) && it.outcome !== null)]);
});

function sorted(calls) {
  return calls.sort((a, b) => b.started_ms - a.started_ms).slice(0, MAX_CALLS);
}

function underWay(call) {
  return { ...call, started_ms: call.time_ms, duration_us: null, outcome: null, delivery: null };
}

/** A record says when a call was over. */
function over(call) {
  return { ...call, started_ms: call.time_ms - call.duration_us / 1000 };
}

/** The last lines of a server, and those that come. */
export async function followLog(name) {
  const { lines } = await ask("GET", `/api/servers/${encodeURIComponent(name)}/logs?limit=${MAX_LINES}`);
  known.logs.set(name, lines);
  changed();
}

/** Everything, anew. */
export async function refreshAll() {
  await Promise.all([refreshServers(), refreshTools(), refreshCalls(), refreshLatencies()]);
}

let latenciesTimer = null;

function hear(event) {
  switch (event.type) {
    case "state":
    case "phase":
      refreshServers();
      break;
    case "tools":
      refreshServers();
      refreshTools();
      break;
    case "config_applied":
      known.rejected = null;
      refreshServers();
      refreshTools();
      break;
    case "config_rejected":
      known.rejected = event.message;
      break;
    case "call_started":
      known.calls.unshift(underWay(event));
      known.calls.length = Math.min(known.calls.length, MAX_CALLS);
      break;
    case "call_finished":
      finish(event);
      latenciesTimer ??= setTimeout(() => {
        latenciesTimer = null;
        refreshLatencies();
      }, 1000);
      break;
    case "stderr":
    case "install":
      append(event);
      break;
    default:
      return;
  }
  changed();
}

function finish(event) {
  const call = known.calls.find((it) => it.id === event.id);
  if (call === undefined) {
    known.calls = sorted([over(event), ...known.calls]);
    return;
  }
  call.outcome = event.outcome;
  call.delivery = event.delivery;
  call.duration_us = event.duration_us;
}

function append(event) {
  const lines = known.logs.get(event.server);
  if (lines === undefined) {
    return;
  }
  lines.push({ number: (lines.at(-1)?.number ?? -1) + 1, time_ms: event.time_ms, line: event.line });
  lines.splice(0, Math.max(0, lines.length - MAX_LINES));
}

/** Begins to listen. Ends only with the page, or when the key does not fit. */
export async function follow() {
  await listen({
    event: hear,
    gap: refreshAll,
    state(state) {
      known.live = state;
      // Events say what is different from before, so there has to be a before; and a break may have hidden some.
      if (state === "live") {
        refreshAll();
      }
      changed();
    },
  });
}
