// Formatting of durations, sizes, counts and times. Pure.

/** Formats microseconds: `840 µs`, `12 ms`, `1.4 s`, `2 min 5 s`. */
export function duration(us) {
  if (us < 1000) {
    return `${Math.round(us)} µs`;
  }
  if (us < 10_000) {
    return `${(us / 1000).toFixed(1)} ms`;
  }
  if (us < 999_500) {
    return `${Math.round(us / 1000)} ms`;
  }
  const seconds = us / 1_000_000;
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  if (seconds < 60) {
    return `${Math.round(seconds)} s`;
  }
  const rounded = Math.round(seconds);
  return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
}

/** Formats a size: `512 B`, `3.4 KiB`, `12 MiB`. */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = n;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 || value >= 10 ? `${Math.round(value)} ${units[unit]}` : `${value.toFixed(1)} ${units[unit]}`;
}

/** Formats a count: `1 tool`, `3 tools`. */
export function count(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

/** Formats the time of day with milliseconds: `14:03:07.120`. */
export function clock(ms) {
  const time = new Date(ms);
  const pad = (n) => String(n).padStart(2, "0");
  const seconds = `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
  return `${seconds}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/** Tick interval of an axis: 1, 2 or 5 times a power of ten, so that about `n` ticks fit into `span`. */
export function tick(span, n) {
  const rough = Math.max(span / n, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough);
  return step * power;
}
