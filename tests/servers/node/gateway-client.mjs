// The TypeScript clients before a gateway: `gateway-client.mjs MODE http URL` or `gateway-client.mjs MODE stdio COMMAND …`.
// MODE is `legacy` or `auto` for the client 2.x, and `sdk-1` for that of the SDK 1.x.
// Lists, calls, follows progress and cancels, and says `done` if all is as it should be.

import assert from 'node:assert';

const [mode, kind, target, ...args] = process.argv.slice(2);
const isOlder = mode === 'sdk-1';
const [{ Client }, { StreamableHTTPClientTransport }, { StdioClientTransport }] = await Promise.all(
  isOlder
    ? ['index', 'streamableHttp', 'stdio'].map((part) => import(`@modelcontextprotocol/sdk/client/${part}.js`))
    : ['', '', '/stdio'].map((part) => import(`@modelcontextprotocol/client${part}`)),
);
const transport = kind === 'http' ? new StreamableHTTPClientTransport(new URL(target)) : new StdioClientTransport({ command: target, args });
const client = new Client({ name: 'gateway-client', version: '1' }, isOlder ? {} : { versionNegotiation: { mode } });
// The older one takes a schema of the result before the options.
const callTool = (call, options) => (isOlder ? client.callTool(call, undefined, options) : client.callTool(call, options));
setTimeout(() => process.exit(2), 60_000).unref();

await client.connect(transport);
const names = (await client.listTools()).tools.map((tool) => tool.name);
assert(names.includes('everything_echo') && names.includes('time_convert_time'), names.join(' '));
const echo = await callTool({ name: 'everything_echo', arguments: { message: 'hello' } });
assert.equal(echo.content[0].text, 'Echo: hello');
const zone = { source_timezone: 'UTC', time: '12:00', target_timezone: 'Asia/Tokyo' };
const time = await callTool({ name: 'time_convert_time', arguments: zone });
assert(time.content[0].text.includes('21:00'), time.content[0].text);

const steps = [];
const slow = { name: 'everything_trigger-long-running-operation', arguments: { duration: 1, steps: 4 } };
await callTool(slow, { onprogress: (progress) => steps.push(progress) });
assert(steps.length >= 3 && steps.at(-1).total === 4, JSON.stringify(steps));

const cancel = new AbortController();
const forever = { name: 'everything_trigger-long-running-operation', arguments: { duration: 60, steps: 2 } };
setTimeout(() => cancel.abort(), 300);
await assert.rejects(callTool(forever, { signal: cancel.signal }));
const next = await callTool({ name: 'everything_echo', arguments: { message: 'next' } });
assert.equal(next.content[0].text, 'Echo: next');
const prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
assert(prompts.includes('everything_simple-prompt'), prompts.join(' '));
assert((await client.listResources()).resources.length > 0);
await client.close();
console.log('done', client.getNegotiatedProtocolVersion?.() ?? '');
process.exit(0);
