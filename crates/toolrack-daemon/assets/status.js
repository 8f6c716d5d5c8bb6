// Server status for people: label, tone, reason, hint and suggested action. Pure.

import { duration } from "./format.js";

const PHASES = {
  installing: "Installing",
  starting: "Starting",
  connecting: "Connecting",
  listing: "Listing tools",
};

/**
 * `{ label, tone, reason, hint, action }` of a server. `tone` is `ok`, `busy`, `warn`, `bad` or `off`; `action` is the
 * suggested next step: `{ verb, label }`, where `verb` is a verb of the API, `open` or `login`. `age_ms` is the age of
 * the status.
 */
export function describeStatus({ config, status }, age_ms) {
  const problem = status.problem;
  const details = { reason: problem?.message ?? null, hint: problem?.hint ?? null };
  if (!config.enabled || status.status.state === "disabled") {
    return { label: "Disabled", tone: "off", reason: null, hint: null, action: { verb: "enable", label: "Enable" } };
  }
  switch (status.phase) {
    case "connected":
      return { label: "Running", tone: "ok", ...details, action: { verb: "open", label: "View tools" } };
    case "needs-auth": {
      const hint = details.hint ?? `run \`toolrack login ${config.name}\``;
      return {
        label: "Login required",
        tone: "warn",
        reason: details.reason,
        hint,
        action: { verb: "login", label: "Log in" },
      };
    }
    case "backing-off": {
      const label = status.is_crash_looping ? "Crash loop" : "Retrying";
      const left = Math.max(0, (status.retry_in_ms ?? 0) - age_ms);
      const wait = left < 1000 ? "retrying now" : `next retry in ${duration(left * 1000)}`;
      const reason = details.reason === null ? wait : `${details.reason}; ${wait}`;
      return { label, tone: "bad", reason, hint: details.hint, action: { verb: "restart", label: "Retry now" } };
    }
    case "failed":
      return { label: "Failed", tone: "bad", ...details, action: { verb: "restart", label: "Retry" } };
    case "disconnected":
      return { label: "Stopped", tone: "off", ...details, action: { verb: "start", label: "Start" } };
    default:
      return {
        label: PHASES[status.phase] ?? "Connecting",
        tone: "busy",
        ...details,
        action: { verb: "stop", label: "Stop" },
      };
  }
}

/** The command line or URL of a server. */
export function commandOrUrl(config) {
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
