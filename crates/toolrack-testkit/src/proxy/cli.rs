//! The program `chaos-proxy`: a proxy from the command line, obeying lines on its input.

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use super::impairments::ILLS;
use super::{ChaosProxy, ProxyPlan};
use crate::quantity;

const HEAD: &str = "\
chaos-proxy: a TCP proxy that makes the network bad

Options:
  --upstream HOST:PORT  whom to forward to
  --listen ADDRESS      where to listen (default 127.0.0.1:0); `listening ADDRESS` says where that is
  --plan PLAN           what is wrong, separated by `;` (default: nothing)
  --seed N              the seed of whatever is drawn (default 0)

Lines on its input (it ends when its input does):
  plan PLAN             another plan, for open connections too
  heal                  nothing is wrong any more
  reset                 resets every open connection
  count                 says `connections N open M`

A plan:
";

/// Runs the program with these arguments, until its input ends.
pub fn run(args: Vec<String>) -> ExitCode {
    let asks = args.iter().any(|arg| arg == "--help");
    let outcome = if asks { say(&help()) } else { obey(&args) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let line = format!("chaos-proxy: {why}\nhint: see `chaos-proxy --help`\n");
            // Nobody is left to tell when stderr is closed.
            io::stderr().write_all(line.as_bytes()).unwrap_or_default();
            ExitCode::from(2)
        }
    }
}

fn obey(args: &[String]) -> io::Result<()> {
    let proxy = start(args)?;
    say(&format!("listening {}\n", proxy.address()))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("plan", plan) => proxy.set_plan(ProxyPlan::parse(plan).map_err(wrong)?)?,
            ("heal", "") => proxy.heal()?,
            ("reset", "") => proxy.reset_all(),
            ("count", "") => {
                say(&format!("connections {} open {}\n", proxy.n_connections(), proxy.n_open()))?;
            }
            ("", _) => (),
            _ => return Err(wrong(format!("no order `{line}`"))),
        }
    }
    Ok(())
}

fn start(args: &[String]) -> io::Result<ChaosProxy> {
    let mut upstream = None;
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let (mut plan, mut seed) = (ProxyPlan::default(), 0);
    let mut left = args.iter();
    while let Some(name) = left.next() {
        let Some(value) = left.next() else { return Err(wrong(format!("`{name}` needs a value"))) };
        match name.as_str() {
            "--upstream" => upstream = value.to_socket_addrs()?.next(),
            "--listen" => {
                let no_address = |_| wrong(format!("`{value}` is no address"));
                listen = value.parse().map_err(no_address)?;
            }
            "--plan" => plan = ProxyPlan::parse(value).map_err(wrong)?,
            "--seed" => seed = quantity::count(value).map_err(wrong)?,
            _ => return Err(wrong(format!("no option `{name}`"))),
        }
    }
    let Some(upstream) = upstream else { return Err(wrong("`--upstream` is missing".to_owned())) };
    ChaosProxy::listen(listen, upstream, plan, seed)
}

fn help() -> String {
    let mut text = HEAD.to_owned();
    for (example, meaning) in ILLS {
        // Writing to a string cannot fail.
        writeln!(text, "  {example:<21} {meaning}").unwrap_or_default();
    }
    text.push_str("Sizes may be ranges, and name a way: `cut(100-5000,up)`.\n");
    text
}

fn say(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
