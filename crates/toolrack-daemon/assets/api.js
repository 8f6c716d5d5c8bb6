// API client: authorized requests, errors as exceptions, and the event stream with reconnects.
//
// The token never stands in a URL: the link that opens the dashboard carries a one-time code behind `#`, which is
// exchanged for a token and removed from the address bar. The token is kept for this tab only.

import { EventReader } from "./sse.js";

const TOKEN_KEY = "toolrack.key";
/** Timeout of a request. Starting a server takes longest. */
const REQUEST_TIMEOUT_MS = 100_000;
/** The daemon sends a keep-alive every 15 seconds, so a stream that is silent for longer is dead. */
const STREAM_TIMEOUT_MS = 45_000;

/** An error response of the API. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.message ?? `the daemon responded with status ${status}`);
    this.status = status;
    this.code = body?.code ?? "INTERNAL";
    this.field = body?.field ?? null;
    this.hint = body?.hint ?? null;
    this.delivery = body?.delivery ?? null;
    this.errors = body?.errors?.length > 0 ? body.errors : [{ ...body, message: this.message }];
  }
}

/** Sends a request and returns the parsed response. `timeout: null` disables the timeout. */
export async function request(method, path, body, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(TOKEN_KEY) ?? ""}` };
  if (body !== undefined) {
    headers["content-type"] = method === "PATCH" ? "application/merge-patch+json" : "application/json";
  }
  const signals = [options.signal, options.timeout === null ? null : AbortSignal.timeout(REQUEST_TIMEOUT_MS)];
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(signals.filter(Boolean)),
    });
  } catch (error) {
    throw networkProblem(error);
  }
  const text = await response.text();
  const value = parseJson(text);
  if (!response.ok) {
    throw new Problem(response.status, value);
  }
  return value;
}

function networkProblem(error) {
  if (error.name === "AbortError") {
    return new Problem(0, { code: "CANCELLED", message: "the request was cancelled" });
  }
  const message = error.name === "TimeoutError" ? "the daemon did not respond in time" : "cannot reach the daemon";
  return new Problem(0, { code: "NETWORK_ERROR", message, hint: "check it with `toolrack daemon status`" });
}

function parseJson(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/** Logs in with the code or token in the URL fragment, if there is one, and removes it from the URL. */
export async function login() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const code = fragment.get("code");
  const token = fragment.get("token");
  if (code === null && token === null) {
    return;
  }
  history.replaceState(null, "", `${location.pathname}#/servers`);
  if (token !== null) {
    sessionStorage.setItem(TOKEN_KEY, token);
    return;
  }
  const response = await request("POST", "/api/login", { code });
  sessionStorage.setItem(TOKEN_KEY, response.token);
}

/** Discards the token. */
export function logout() {
  sessionStorage.removeItem(TOKEN_KEY);
}

/** Whether there is a token, valid or not. */
export function hasToken() {
  return sessionStorage.getItem(TOKEN_KEY) !== null;
}

/**
 * Reads the event stream as long as the page is open, and reconnects with backoff. `handlers.event` gets each event,
 * `handlers.state` gets `live`, `lost` or `locked`, and `handlers.gap` is called when events were missed and all data
 * must be loaded again.
 */
export async function subscribe(handlers) {
  const reader = new EventReader();
  let failures = 0;
  for (;;) {
    try {
      await readStream(reader, handlers, () => {
        failures = 0;
      });
    } catch (error) {
      if (error instanceof Problem && error.status === 401) {
        handlers.state("locked");
        return;
      }
    }
    handlers.state("lost");
    failures += 1;
    const maxDelay = Math.min(10_000, 250 * 2 ** failures);
    await new Promise((done) => setTimeout(done, maxDelay * (0.5 + Math.random() / 2)));
  }
}

async function readStream(reader, handlers, onConnected) {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), STREAM_TIMEOUT_MS);
  const headers = { authorization: `Bearer ${sessionStorage.getItem(TOKEN_KEY) ?? ""}`, accept: "text/event-stream" };
  if (reader.lastId !== null) {
    headers["last-event-id"] = reader.lastId;
  }
  try {
    const response = await fetch("/api/events", { headers, signal: abort.signal });
    if (!response.ok) {
      throw new Problem(response.status, parseJson(await response.text()));
    }
    onConnected();
    handlers.state("live");
    const chunks = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await chunks.read();
      if (done) {
        return;
      }
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), STREAM_TIMEOUT_MS);
      for (const event of reader.feed(value)) {
        dispatch(event, handlers);
      }
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

function dispatch(message, handlers) {
  const event = parseJson(message.data);
  if (event?.type === "lost" || event?.type === "missed") {
    handlers.gap();
  } else if (event !== null) {
    handlers.event(event);
  }
}
