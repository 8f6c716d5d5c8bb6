// What is different between two texts, line by line. Pure.

/** Unchanged lines that are shown around a change. */
const CONTEXT = 2;
/** Beyond this many lines that differ, all of the one and all of the other is shown. */
const MAX_LINES = 2000;

/** Lines of both: `{ sign, line }` with `-` for the old, `+` for the new, ` ` for both, `…` for those left out. */
export function differences(before, after) {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) {
    head += 1;
  }
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) {
    tail += 1;
  }
  const same = (lines) => lines.map((line) => ({ sign: " ", line }));
  const middle = compare(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return shortened([...same(old.slice(0, head)), ...middle, ...same(old.slice(old.length - tail))]);
}

/** The longest common subsequence, by its table. */
function compare(old, now) {
  if (old.length > MAX_LINES || now.length > MAX_LINES) {
    return [...old.map((line) => ({ sign: "-", line })), ...now.map((line) => ({ sign: "+", line }))];
  }
  const table = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let a = old.length - 1; a >= 0; a -= 1) {
    for (let b = now.length - 1; b >= 0; b -= 1) {
      table[a][b] = old[a] === now[b] ? table[a + 1][b + 1] + 1 : Math.max(table[a + 1][b], table[a][b + 1]);
    }
  }
  const found = [];
  let [a, b] = [0, 0];
  while (a < old.length || b < now.length) {
    if (a < old.length && b < now.length && old[a] === now[b]) {
      found.push({ sign: " ", line: old[a] });
      a += 1;
      b += 1;
    } else if (b >= now.length || (a < old.length && table[a + 1][b] >= table[a][b + 1])) {
      found.push({ sign: "-", line: old[a] });
      a += 1;
    } else {
      found.push({ sign: "+", line: now[b] });
      b += 1;
    }
  }
  return found;
}

function shortened(lines) {
  const isNear = (place) =>
    lines.slice(Math.max(0, place - CONTEXT), place + CONTEXT + 1).some((it) => it.sign === "-" || it.sign === "+");
  const kept = [];
  for (const [place, line] of lines.entries()) {
    if (isNear(place)) {
      kept.push(line);
    } else if (kept.at(-1)?.sign !== "…") {
      kept.push({ sign: "…", line: "" });
    }
  }
  return kept;
}
