// Which tools and calls a person looks for. Pure.

/** Words that all have to occur; `server:name` and `tool:name` look only there. */
export function wanted(query) {
  const words = query
    .toLowerCase()
    .split(/\s+/)
    .filter((it) => it !== "");
  return words.map((word) => {
    const [, where, what] = /^(server|tool|outcome):(.*)$/.exec(word) ?? [null, null, word];
    return { where, what };
  });
}

/** How well a tool fits: 0 is not at all; its name counts more than what is said of it. */
export function toolScore(tool, words) {
  const name = `${tool.name} ${tool.raw_name} ${tool.title ?? ""}`.toLowerCase();
  const server = tool.server.toLowerCase();
  const about = (tool.description ?? "").toLowerCase();
  let score = 1;
  for (const { where, what } of words) {
    const inServer = where !== "tool" && (where === "server" ? server === what : server.includes(what));
    const inName = where !== "server" && name.includes(what);
    const inText = where === null && about.includes(what);
    if (!inServer && !inName && !inText) {
      return 0;
    }
    score += inName ? (tool.raw_name.toLowerCase().startsWith(what) ? 8 : 4) : inServer ? 2 : 1;
  }
  return score;
}

/** The tools that fit, best first, and in their own order where they fit equally. */
export function findTools(tools, query) {
  const words = wanted(query);
  const scored = tools.map((tool, place) => ({ tool, place, score: toolScore(tool, words) }));
  const found = scored.filter((it) => it.score > 0);
  if (words.some((it) => it.where !== "server")) {
    found.sort((a, b) => b.score - a.score || a.place - b.place);
  }
  return found.map((it) => it.tool);
}

/** Whether a call fits a query and an outcome (`""` for any, `running` for those without one). */
export function callFits(call, words, outcome) {
  const own = call.outcome ?? "running";
  if (outcome !== "" && (outcome === "trouble" ? ["done", "running"].includes(own) : own !== outcome)) {
    return false;
  }
  const texts = { server: call.server.toLowerCase(), tool: call.tool.toLowerCase(), outcome: own };
  const all = `${texts.server} ${texts.tool} ${own} ${call.id}`;
  return words.every(({ where, what }) => (where === null ? all.includes(what) : texts[where].includes(what)));
}
