// Where calls stand on a common axis of time. Pure.

import { duration, tick } from "./format.js";

/** The shortest span that is shown. */
const MIN_SPAN_MS = 50;
/** Calls with a longer pause between them are told apart by the list; the axis shows only the latest burst. */
const PAUSE_MS = 60_000;

/** When a call was over, or now. */
export function endOf(call, now_ms) {
  return call.duration_us === null ? Math.max(now_ms, call.started_ms) : call.started_ms + call.duration_us / 1000;
}

/** The axis for calls, newest first: `{ from, to }` in milliseconds. */
export function axisOf(calls, now_ms) {
  if (calls.length === 0) {
    return { from: now_ms - MIN_SPAN_MS, to: now_ms };
  }
  let from = calls[0].started_ms;
  let to = endOf(calls[0], now_ms);
  for (const call of calls) {
    const end = endOf(call, now_ms);
    if (from - end > PAUSE_MS) {
      break;
    }
    from = Math.min(from, call.started_ms);
    to = Math.max(to, end);
  }
  const span = Math.max(to - from, MIN_SPAN_MS);
  return { from, to: from + span * 1.02 };
}

/** Where a call stands on the axis, in percent: `{ left, width }`; `null` if it is not on it. */
export function barOf(call, axis, now_ms) {
  const span = axis.to - axis.from;
  const left = ((call.started_ms - axis.from) / span) * 100;
  const right = ((endOf(call, now_ms) - axis.from) / span) * 100;
  return right < 0 ? null : { left: Math.max(left, 0), width: Math.max(right - Math.max(left, 0), 0.4) };
}

/** Marks of the axis: `{ left, label }` with the time since its begin. */
export function marksOf({ from, to }, n) {
  const step = tick(to - from, n);
  const marks = [];
  for (let at = 0; at < to - from; at += step) {
    marks.push({ left: (at / (to - from)) * 100, label: at === 0 ? "0" : duration(at * 1000) });
  }
  return marks;
}
