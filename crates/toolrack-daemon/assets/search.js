// Search and filters for tools and calls. Pure.

/** Parses a query into terms that must all match; `server:name`, `tool:name` and `outcome:name` match one field. */
export function parseQuery(query) {
  const words = query
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  return words.map((word) => {
    const [, field, text] = /^(server|tool|outcome):(.*)$/.exec(word) ?? [null, null, word];
    return { field, text };
  });
}

/** Score of a tool; 0 if it does not match. Names weigh more than descriptions. */
export function toolScore(tool, terms) {
  const name = `${tool.name} ${tool.raw_name} ${tool.title ?? ""}`.toLowerCase();
  const server = tool.server.toLowerCase();
  const description = (tool.description ?? "").toLowerCase();
  let score = 1;
  for (const { field, text } of terms) {
    const inServer = field !== "tool" && (field === "server" ? server === text : server.includes(text));
    const inName = field !== "server" && name.includes(text);
    const inDescription = field === null && description.includes(text);
    if (!inServer && !inName && !inDescription) {
      return 0;
    }
    score += inName ? (tool.raw_name.toLowerCase().startsWith(text) ? 8 : 4) : inServer ? 2 : 1;
  }
  return score;
}

/** Matching tools, best first; tools with equal scores keep their order. */
export function findTools(tools, query) {
  const terms = parseQuery(query);
  const scored = tools.map((tool, index) => ({ tool, index, score: toolScore(tool, terms) }));
  const matches = scored.filter(({ score }) => score > 0);
  if (terms.some(({ field }) => field !== "server")) {
    matches.sort((a, b) => b.score - a.score || a.index - b.index);
  }
  return matches.map(({ tool }) => tool);
}

/** Whether a call matches a query and an outcome (`""` for all, `running`, or `unsuccessful` for all but `done`). */
export function callMatches(call, terms, outcome) {
  const own = call.outcome ?? "running";
  if (outcome !== "" && (outcome === "unsuccessful" ? ["done", "running"].includes(own) : own !== outcome)) {
    return false;
  }
  const fields = { server: call.server.toLowerCase(), tool: call.tool.toLowerCase(), outcome: own };
  const all = `${fields.server} ${fields.tool} ${own} ${call.id}`;
  return terms.every(({ field, text }) => (field === null ? all : fields[field]).includes(text));
}
