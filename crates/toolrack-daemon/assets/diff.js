// Line diff of two texts. Pure.

/** Unchanged lines shown around a change. */
const CONTEXT = 2;
/** With more changed lines than this, everything is shown as replaced: the table grows with the square. */
const MAX_LINES = 2000;

/** Diff lines `{ sign, line }`: `-` removed, `+` added, ` ` unchanged, `…` for omitted lines. */
export function diffLines(before, after) {
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
  const unchanged = (lines) => lines.map((line) => ({ sign: " ", line }));
  const middle = compare(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return collapse([...unchanged(old.slice(0, head)), ...middle, ...unchanged(old.slice(old.length - tail))]);
}

/** Longest common subsequence by dynamic programming. */
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
  const lines = [];
  let [a, b] = [0, 0];
  while (a < old.length || b < now.length) {
    if (a < old.length && b < now.length && old[a] === now[b]) {
      lines.push({ sign: " ", line: old[a] });
      a += 1;
      b += 1;
    } else if (b >= now.length || (a < old.length && table[a + 1][b] >= table[a][b + 1])) {
      lines.push({ sign: "-", line: old[a] });
      a += 1;
    } else {
      lines.push({ sign: "+", line: now[b] });
      b += 1;
    }
  }
  return lines;
}

function collapse(lines) {
  const isNearChange = (index) =>
    lines.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some(({ sign }) => sign === "-" || sign === "+");
  const kept = [];
  for (const [index, line] of lines.entries()) {
    if (isNearChange(index)) {
      kept.push(line);
    } else if (kept.at(-1)?.sign !== "…") {
      kept.push({ sign: "…", line: "" });
    }
  }
  return kept;
}
