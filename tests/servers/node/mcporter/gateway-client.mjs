// mcporter before a gateway: `gateway-client.mjs MODE http URL` or `gateway-client.mjs MODE stdio COMMAND …`.
// MODE is `cli`, the only one. Lists, calls and cancels, and says `done` if all is as it should be.
// mcporter never asks for progress, so a call with steps only has to end; and it cancels by its timeout alone.

import assert from 'node:assert';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { createRuntime } from 'mcporter';

const [mode, kind, target, ...args] = process.argv.slice(2);
assert.equal(mode, 'cli');
const home = mkdtempSync(join(tmpdir(), 'mcporter-'));
process.on('exit', () => rmSync(home, { recursive: true, force: true }));
const config = join(home, 'mcporter.json');
const server = kind === 'http' ? { baseUrl: target } : { command: target, args };
// Without imports, so that servers of other programs on this machine stay out of it.
writeFileSync(config, JSON.stringify({ imports: [], mcpServers: { gateway: server } }));
const program = join(import.meta.dirname, 'node_modules/mcporter/dist/cli.js');
const env = { ...process.env, HOME: home, XDG_CONFIG_HOME: home, MCPORTER_DAEMON_DIR: home };

const mcporter = async (...words) => {
  const options = { env, cwd: home, timeout: 60_000, maxBuffer: 16 << 20 };
  return (await promisify(execFile)(process.execPath, [program, '--config', config, ...words], options)).stdout;
};

// As a person uses it: each command is a connection of its own.
const listed = JSON.parse(await mcporter('list', 'gateway', '--json'));
const names = listed.tools.map((tool) => tool.name);
assert(names.includes('everything_echo') && names.includes('time_convert_time'), names.join(' '));
const echo = await mcporter('call', 'gateway.everything_echo', 'message=hello');
assert(echo.includes('Echo: hello'), echo);

// As a program uses it: one connection for all.
const runtime = await createRuntime({ configPath: config, rootDir: home });
const call = async (tool, given, timeoutMs) => {
  const result = await runtime.callTool('gateway', tool, { args: given, timeoutMs });
  return result.content[0].text;
};
const zone = { source_timezone: 'UTC', time: '12:00', target_timezone: 'Asia/Tokyo' };
assert((await call('time_convert_time', zone)).includes('21:00'));
const slow = await call('everything_trigger-long-running-operation', { duration: 1, steps: 4 });
assert(slow.includes('Long running operation completed'), slow);
const forever = { duration: 60, steps: 2 };
await assert.rejects(call('everything_trigger-long-running-operation', forever, 500), /timed? ?out/i);
assert.equal(await call('everything_echo', { message: 'next' }), 'Echo: next');
await runtime.close();
console.log('done');
process.exit(0);
