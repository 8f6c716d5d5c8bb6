// The daemon's API, as the page uses it: requests with its key, problems as errors, events that go on after a break.
//
// The key never stands in an address: the link that opens the page carries a code behind `#`, which the page trades
// for a key of its own and removes from the address bar. The key is kept for this tab only.

import { EventReader } from "./sse.js";

const KEY = "toolrack.key";
/** How long an answer may take. Starting a server takes longest. */
const PATIENCE_MS = 100_000;
/** The daemon says something every few seconds, if only that it is there. */
const SILENCE_MS = 45_000;

/** Why a request was not fulfilled. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.message ?? `the daemon answered with status ${status}`);
    this.status = status;
    this.code = body?.code ?? "INTERNAL";
    this.field = body?.field ?? null;
    this.hint = body?.hint ?? null;
    this.delivery = body?.delivery ?? null;
    this.errors = body?.errors?.length > 0 ? body.errors : [{ ...body, message: this.message }];
  }
}

/** Sends a request, and gives what was answered. */
export async function ask(method, path, body, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (body !== undefined) {
    headers["content-type"] = method === "PATCH" ? "application/merge-patch+json" : "application/json";
  }
  const signals = [options.signal, options.patience === null ? null : AbortSignal.timeout(PATIENCE_MS)];
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(signals.filter(Boolean)),
    });
  } catch (error) {
    throw unreachable(error);
  }
  const text = await response.text();
  const value = parsed(text);
  if (!response.ok) {
    throw new Problem(response.status, value);
  }
  return value;
}

function unreachable(error) {
  if (error.name === "AbortError") {
    return new Problem(0, { code: "CANCELLED", message: "the request was taken back" });
  }
  const message = error.name === "TimeoutError" ? "the daemon did not answer in time" : "the daemon cannot be reached";
  return new Problem(0, { code: "NETWORK_ERROR", message, hint: "look whether it runs with `toolrack daemon status`" });
}

function parsed(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/** Whether a code or a key in the address was put to use. The address is cleaned in any case. */
export async function login() {
  const given = new URLSearchParams(location.hash.slice(1));
  const code = given.get("code");
  const key = given.get("token");
  if (code === null && key === null) {
    return;
  }
  history.replaceState(null, "", `${location.pathname}#/servers`);
  if (key !== null) {
    sessionStorage.setItem(KEY, key);
    return;
  }
  const answer = await ask("POST", "/api/login", { code });
  sessionStorage.setItem(KEY, answer.token);
}

/** Forgets a key that does not fit any more. */
export function logout() {
  sessionStorage.removeItem(KEY);
}

/** Whether there is a key to try. */
export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

/**
 * Listens to events as long as the page is open. `hear.event` gets each of them, `hear.state` gets `live`, `lost` or
 * `locked`, and `hear.gap` is told when something was missed and everything has to be asked for again.
 */
export async function listen(hear) {
  const reader = new EventReader();
  let n_failures = 0;
  for (;;) {
    try {
      await follow(reader, hear, () => {
        n_failures = 0;
      });
    } catch (error) {
      if (error instanceof Problem && error.status === 401) {
        hear.state("locked");
        return;
      }
    }
    hear.state("lost");
    n_failures += 1;
    const longest = Math.min(10_000, 250 * 2 ** n_failures);
    await new Promise((done) => setTimeout(done, longest * (0.5 + Math.random() / 2)));
  }
}

async function follow(reader, hear, connected) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, accept: "text/event-stream" };
  if (reader.lastId !== null) {
    headers["last-event-id"] = reader.lastId;
  }
  try {
    const response = await fetch("/api/events", { headers, signal: silence.signal });
    if (!response.ok) {
      throw new Problem(response.status, parsed(await response.text()));
    }
    connected();
    hear.state("live");
    const chunks = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await chunks.read();
      if (done) {
        return;
      }
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      for (const event of reader.feed(value)) {
        pass(event, hear);
      }
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

function pass(event, hear) {
  const told = parsed(event.data);
  if (told?.type === "lost" || told?.type === "missed") {
    hear.gap();
  } else if (told !== null) {
    hear.event(told);
  }
}
