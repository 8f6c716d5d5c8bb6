//! Program `oauth-server`: an OAuth server for tests on loopback. See `--help`.

use std::io::{self, Write as _};
use std::time::Duration;

use toolrack_testkit::oauth::{Fault, OAuthPlan, OAuthServer};

const HELP: &str = "\
oauth-server [--fault NAME]... [--lifetime-ms N] [--client ID:SECRET]...

Serves a protected MCP-like endpoint, two authorization servers and an identity provider on free ports of
127.0.0.1, and prints one line for each: `mcp URL`, `issuer URL`, `second URL`. Counters are at /stats of
each. It runs until killed.

Faults:
";

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    let Some(plan) = plan(std::env::args().skip(1)) else {
        out.write_all(HELP.as_bytes())?;
        let names = Fault::parse("").err().unwrap_or_default();
        return names.split(", ").try_for_each(|name| writeln!(out, "  {name}"));
    };
    let server = OAuthServer::start(plan)?;
    writeln!(out, "mcp {}", server.url())?;
    writeln!(out, "issuer {}", server.issuer())?;
    writeln!(out, "second {}", server.second_issuer())?;
    out.flush()?;
    server.wait();
    Ok(())
}

/// `None` asks for the help text.
fn plan(mut args: impl Iterator<Item = String>) -> Option<OAuthPlan> {
    let mut plan = OAuthPlan::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--fault" => plan.faults.push(Fault::parse(&args.next()?).ok()?),
            "--lifetime-ms" => plan.lifetime = Duration::from_millis(args.next()?.parse().ok()?),
            "--client" => {
                let client = args.next()?;
                let (id, secret) = client.split_once(':')?;
                plan.clients.push((id.to_owned(), secret.to_owned()));
            }
            _ => return None,
        }
    }
    Some(plan)
}
