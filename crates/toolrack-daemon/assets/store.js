// Application state: servers, tools and calls, kept up to date by the event stream.
//
// Events about servers and tools only trigger a reload. Events about calls are applied directly, because there can be
// thousands.

import { request, subscribe } from "./api.js";

/** Maximum number of calls in the list. */
const MAX_CALLS = 1000;
/** Maximum number of log lines per server. */
const MAX_LINES = 500;

/** The current state. */
export const store = {
  servers: null,
  /** When `servers` was loaded. */
  servers_at: 0,
  tools: null,
  /** Newest first, including running ones: `{id, server, tool, started_ms, duration_us, outcome, delivery}`. */
  calls: [],
  latencies: [],
  /** Stderr lines by server name. */
  logs: new Map(),
  /** State of the event stream: `connecting`, `live`, `lost` or `locked`. */
  connection: "connecting",
  /** Why the config file was last rejected. */
  rejected: null,
};

const listeners = new Set();
let isScheduled = false;

/** Calls `listener` soon after a change. Returns a function that removes it. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// Batches changes: a burst of events updates the page once.
function changed() {
  if (isScheduled) {
    return;
  }
  isScheduled = true;
  setTimeout(() => {
    isScheduled = false;
    for (const listener of listeners) {
      listener();
    }
  }, 40);
}

/** Wraps a loader so that one request runs at a time; a call during a request repeats it once afterwards. */
function refresher(load) {
  let running = null;
  let again = false;
  return async function refresh() {
    if (running !== null) {
      again = true;
      return running;
    }
    running = (async () => {
      do {
        again = false;
        await load().catch(() => {});
      } while (again);
      running = null;
      changed();
    })();
    return running;
  };
}

export const refreshServers = refresher(async () => {
  store.servers = (await request("GET", "/api/servers")).servers;
  store.servers_at = Date.now();
});

export const refreshTools = refresher(async () => {
  store.tools = (await request("GET", "/api/tools")).tools;
});

export const refreshLatencies = refresher(async () => {
  store.latencies = (await request("GET", "/api/latencies")).latencies;
});

const refreshCalls = refresher(async () => {
  const { running, calls } = await request("GET", "/api/calls?limit=200");
  const loaded = [...running.map(fromRunning), ...calls.map(fromRecord)];
  const ids = new Set(loaded.map((call) => call.id));
  store.calls = sorted([...loaded, ...store.calls.filter((call) => !ids.has(call.id) && call.outcome !== null)]);
});

function sorted(calls) {
  return calls.sort((a, b) => b.started_ms - a.started_ms).slice(0, MAX_CALLS);
}

function fromRunning(call) {
  return { ...call, started_ms: call.time_ms, duration_us: null, outcome: null, delivery: null };
}

/** `time_ms` of a record is the end of the call. */
function fromRecord(call) {
  return { ...call, started_ms: call.time_ms - call.duration_us / 1000 };
}

/** Loads the log of a server; later lines are appended by events. */
export async function followLog(name) {
  const { lines } = await request("GET", `/api/servers/${encodeURIComponent(name)}/logs?limit=${MAX_LINES}`);
  store.logs.set(name, lines);
  changed();
}

/** Reloads everything. */
export async function refreshAll() {
  await Promise.all([refreshServers(), refreshTools(), refreshCalls(), refreshLatencies()]);
}

let latenciesTimer = null;

function handleEvent(event) {
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
      store.rejected = null;
      refreshServers();
      refreshTools();
      break;
    case "config_rejected":
      store.rejected = event.message;
      break;
    case "call_started":
      store.calls.unshift(fromRunning(event));
      store.calls.length = Math.min(store.calls.length, MAX_CALLS);
      break;
    case "call_finished":
      finishCall(event);
      latenciesTimer ??= setTimeout(() => {
        latenciesTimer = null;
        refreshLatencies();
      }, 1000);
      break;
    case "stderr":
    case "install":
      appendLine(event);
      break;
    default:
      return;
  }
  changed();
}

function finishCall(event) {
  const call = store.calls.find((other) => other.id === event.id);
  if (call === undefined) {
    store.calls = sorted([fromRecord(event), ...store.calls]);
    return;
  }
  call.outcome = event.outcome;
  call.delivery = event.delivery;
  call.duration_us = event.duration_us;
}

function appendLine(event) {
  const lines = store.logs.get(event.server);
  if (lines === undefined) {
    return;
  }
  lines.push({ number: (lines.at(-1)?.number ?? -1) + 1, time_ms: event.time_ms, line: event.line });
  lines.splice(0, Math.max(0, lines.length - MAX_LINES));
}

/** Subscribes to events. Returns only when the token is rejected. */
export async function start() {
  await subscribe({
    event: handleEvent,
    gap: refreshAll,
    state(state) {
      store.connection = state;
      // Events are changes to loaded data, and some may have been missed before the stream was open.
      if (state === "live") {
        refreshAll();
      }
      changed();
    },
  });
}
