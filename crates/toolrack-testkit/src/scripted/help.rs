//! The text of `scripted-server --help`, with the grammar of plans made from its own tables.

use std::fmt::Write;

use crate::plan::{FAULTS, HTTP_FAULTS, Moment};

const HEAD: &str = "\
scripted-server: an MCP server, on stdin and stdout or over HTTP, that misbehaves exactly as its plan says

Options:
  --revision R        2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 (default), 2026-07-28,
                      modern (the same), or dual (both eras)
  --plan PLAN         what goes wrong, and when
  --mix MIX           a random fault for each call by weight, as in \"ok=80,exit=5,late(50ms)=3\"
  --seed N            the seed of the mix (default 0); `pid` differs for each process
  --tools N           so many generated tools besides its own
  --schema-bytes SIZE the size of the input schema of each generated tool
  --page-size N       tools per page of `tools/list` (default: all)
  --silent-changes    does not say that its tools change, nor when
  --journal FILE      appends a line for each call that was run or cancelled
  --marker TEXT       does nothing but be seen, here and on every process started from here
  --lifetime TIME     when processes that would never end do end (default 120s)
  --header-tools WHICH
                      tools with `x-mcp-header`: valid, invalid or all

Over HTTP (the server says `listening URL` on stdout, and ends when its input does):
  --http ADDRESS      where to listen, as in 127.0.0.1:0
  --shape SHAPE       session (2025, default), stateless (2026-07-28, or an older revision without
                      sessions), sse (2024-11-05, two endpoints), dual (stateless and session)
  --reply KIND        json, sse, or auto (default): JSON unless there is more to say than the answer
  --event-ids on|off  ids on the events of sessions, so that streams can be taken up again
  --retry TIME        the `retry` field at the start of each stream of a session
  --comments TIME     a comment on each open stream, so often
  --endpoint FORM     the URL for messages of `sse`: relative (default), absolute, foreign
  --http-log FILE     appends a line for each request that arrived, and for the end of its reply

A plan is rules separated by `;`. A rule is a moment, `=`, and faults joined by `+`:
  call=late(200ms)            at every call
  call:3=exit(1)              at the third call only
  call:3-7=dup                from the third to the seventh; `3-` has no end
  call:every=10=hang          at every tenth
  start=stderr(10MiB)+garbage(text,3)
A fault without a moment stands at its usual one (mostly `call`), also as `name=arguments`:
  stderr=10MiB; late=200ms; ignore=term,eof; cursor=same

Moments:
";

const TAIL: &str = "
Examples:
  scripted-server --revision 2025-11-25 --plan \"call:3=exit(1); stderr=10MiB; late=200ms\"
  scripted-server --revision 2024-11-05 --plan \"unknown=exit(1)\"      dies of server/discover
  scripted-server --revision dual --plan \"tree; escape=2; ignore=term,eof\"
  scripted-server --http 127.0.0.1:0 --shape dual --plan \"http:1-3=status(503,1s); stream=end\"
  scripted-server --mix \"ok=80,exit=5,hang=5,garbage=5,late=3,dup=2\" --seed 7 --journal run.log
";

pub(super) fn text() -> String {
    let mut text = HEAD.to_owned();
    let rows = Moment::ALL.iter().map(|(_, name, meaning)| (*name, *meaning));
    add_rows(&mut text, rows);
    text.push_str("\nFaults:\n");
    add_rows(&mut text, FAULTS.iter().copied());
    text.push_str("\nFaults over HTTP:\n");
    add_rows(&mut text, HTTP_FAULTS.iter().copied());
    text.push_str(TAIL);
    text
}

fn add_rows<'a>(text: &mut String, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, meaning) in rows {
        // Writing to a string cannot fail.
        writeln!(text, "  {name:<20} {meaning}").unwrap_or_default();
    }
}
