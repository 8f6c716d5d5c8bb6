// What a server's status means to a person: a word, how serious it is, and what to do next. Pure.

import { duration } from "./format.js";

const BUSY = { installing: "Installing", starting: "Starting", handshake: "Handshake", listing: "Listing tools" };

/**
 * `{ word, tone, reason, hint, next }` of a server. `tone` is `ok`, `busy`, `warn`, `bad` or `off`; `next` is what
 * would help most: `{ verb, label }`, a verb of the API or `open`, `login`. `age_ms` is how old the status is.
 */
export function standing({ config, status }, age_ms) {
  const problem = status.problem;
  const told = { reason: problem?.message ?? null, hint: problem?.hint ?? null };
  if (!config.enabled || status.status.state === "disabled") {
    return { word: "Disabled", tone: "off", reason: null, hint: null, next: { verb: "enable", label: "Enable" } };
  }
  switch (status.phase) {
    case "connected":
      return { word: "Running", tone: "ok", ...told, next: { verb: "open", label: "Try a tool" } };
    case "needs-auth": {
      const hint = told.hint ?? `run \`toolrack login ${config.name}\``;
      return {
        word: "Login needed",
        tone: "warn",
        reason: told.reason,
        hint,
        next: { verb: "login", label: "Log in" },
      };
    }
    case "backing-off": {
      const word = status.is_crash_looping ? "Crash-looping" : "Waiting";
      const left = Math.max(0, (status.retry_in_ms ?? 0) - age_ms);
      const wait = left < 1000 ? "next try any moment" : `next try in ${duration(left * 1000)}`;
      const reason = told.reason === null ? wait : `${told.reason}; ${wait}`;
      return { word, tone: "bad", reason, hint: told.hint, next: { verb: "restart", label: "Retry now" } };
    }
    case "failed":
      return { word: "Failed", tone: "bad", ...told, next: { verb: "restart", label: "Retry" } };
    case "disconnected":
      return { word: "Stopped", tone: "off", ...told, next: { verb: "start", label: "Start" } };
    default:
      return { word: BUSY[status.phase] ?? "Connecting", tone: "busy", ...told, next: { verb: "stop", label: "Stop" } };
  }
}

/** What is run or reached, in one line. */
export function origin(config) {
  const { package: source, transport } = config;
  if (transport.type === "http") {
    return transport.url ?? source.identifier;
  }
  const args = (config.config?.args ?? []).join(" ");
  const version = source.version ? `@${source.version}` : "";
  const name =
    source.package_type === "binary" ? source.identifier : `${source.package_type}:${source.identifier}${version}`;
  return args === "" ? name : `${name} ${args}`;
}
