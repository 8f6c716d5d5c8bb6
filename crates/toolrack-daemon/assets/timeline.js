// Time axis and bars of the call waterfall. Pure.

import { duration, tick } from "./format.js";

/** The shortest span of the axis. */
const MIN_SPAN_MS = 50;
/** A pause longer than this splits calls into bursts; the axis shows only the latest burst. */
const PAUSE_MS = 60_000;

/** End time of a call, or now if it is running. */
export function endTime(call, now_ms) {
  return call.duration_us === null ? Math.max(now_ms, call.started_ms) : call.started_ms + call.duration_us / 1000;
}

/** The axis `{ from, to }` in milliseconds for calls, newest first. */
export function timeAxis(calls, now_ms) {
  if (calls.length === 0) {
    return { from: now_ms - MIN_SPAN_MS, to: now_ms };
  }
  let from = calls[0].started_ms;
  let to = endTime(calls[0], now_ms);
  for (const call of calls) {
    const end = endTime(call, now_ms);
    if (from - end > PAUSE_MS) {
      break;
    }
    from = Math.min(from, call.started_ms);
    to = Math.max(to, end);
  }
  const span = Math.max(to - from, MIN_SPAN_MS);
  return { from, to: from + span * 1.02 };
}

/** Position of a call on the axis in percent, `{ left, width }`; `null` if it is before the axis. */
export function callBar(call, axis, now_ms) {
  const span = axis.to - axis.from;
  const left = ((call.started_ms - axis.from) / span) * 100;
  const right = ((endTime(call, now_ms) - axis.from) / span) * 100;
  return right < 0 ? null : { left: Math.max(left, 0), width: Math.max(right - Math.max(left, 0), 0.4) };
}

/** Axis ticks `{ left, label }`, labelled with the time since the start of the axis. */
export function axisTicks({ from, to }, n) {
  const step = tick(to - from, n);
  const ticks = [];
  for (let offset = 0; offset < to - from; offset += step) {
    ticks.push({ left: (offset / (to - from)) * 100, label: offset === 0 ? "0" : duration(offset * 1000) });
  }
  return ticks;
}
