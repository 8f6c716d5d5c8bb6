// Gets a key for the code in the link that opened the page, and lists the servers.
"use strict";

const KEY = "toolrack.key";

function say(text) {
  document.getElementById("state").textContent = text;
}

async function ask(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.message);
  return body;
}

async function enter() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  // Out of the address first, so that it is not copied by accident.
  history.replaceState(null, "", location.pathname);
  const { token } = await ask("/api/login", { method: "POST", body: JSON.stringify({ code }) });
  sessionStorage.setItem(KEY, token);
}

async function main() {
  await enter();
  if (!sessionStorage.getItem(KEY)) {
    say("Open this page with `toolrack dashboard`.");
    return;
  }
  const { servers } = await ask("/api/servers");
  say(`${servers.length} servers`);
  for (const server of servers) {
    const row = document.createElement("li");
    row.textContent = `${server.config.name}: ${server.status.status.state}`;
    document.getElementById("servers").append(row);
  }
}

main().catch((error) => say(error.message));
