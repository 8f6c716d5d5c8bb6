//! G05: memory stays bounded for any server output, and the same server still answers afterwards.
//!
//! Each flood runs in a process of its own, which measures its own memory.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolrack_testkit::Marker;
use toolrack_testkit::harness::{
    memory_kib, own_program, print_progress, reset_peak_memory, run_to_exit,
};
use toolrack_transport::Transport as _;

use crate::findings::Findings;
use crate::gate::Effort;
use crate::peer::{Peer, ServerScript};
use crate::random::Seeds;

/// Allowed peak above the baseline of a client with an open transport.
const BOUND_KIB: u64 = 48 << 10;

/// Time limit for one flood.
const LIMIT: Duration = Duration::from_mins(6);

pub(crate) fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let seed = seeds.first();
    findings.count("floods", Flood::value_variants().len() as u64);
    findings.count("bound_kib", BOUND_KIB);
    for flood in Flood::value_variants() {
        let name = value_name(*flood);
        print_progress(format!("G05: {name}"));
        let marker = Marker::new();
        let effort = effort.select("quick", "full");
        let mut child = own_program()?;
        child.args(["measure", &name, "--effort", effort, "--marker", marker.value()]);
        let output = run_to_exit(&mut child, LIMIT)?;
        let figure = name.replace('-', "_");
        match serde_json::from_str::<Measured>(output.stdout.trim()) {
            Ok(measured) => {
                let over_kib = measured.peak_kib.saturating_sub(measured.baseline_kib);
                findings.count(&format!("{figure}_kib"), over_kib);
                findings.count(&format!("{figure}_came"), measured.received);
                if let Err(what) = judge(&measured) {
                    findings.fail(seed, format!("{name}: {what}"));
                }
            }
            Err(_) => {
                findings
                    .fail(seed, format!("{name}: nothing was measured: {}", output.exit_status));
            }
        }
        findings.fail_leftovers(seed, &format!("{name}: left behind and killed"), &marker);
    }
    Ok(findings)
}

fn judge(measured: &Measured) -> Result<(), String> {
    let Measured { baseline_kib, peak_kib, received } = measured;
    if *received == 0 {
        return Err("no flood arrived, so nothing was tested".to_owned());
    }
    if peak_kib.saturating_sub(*baseline_kib) > BOUND_KIB {
        return Err(format!(
            "the peak of {peak_kib} KiB lies more than {BOUND_KIB} KiB above {baseline_kib} KiB"
        ));
    }
    Ok(())
}

fn value_name(flood: Flood) -> String {
    flood.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Calls before the flood, so that the baseline includes what every call needs.
const N_WARM: usize = 3;

/// Timeout of one call, including the flood.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// Timeout of a call that gets no response.
const NO_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Kind of flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flood {
    /// A line without an end
    OpenLine,
    /// A junk line before the response
    LongLine,
    /// A response with its id in front
    HugeAnswer,
    /// A response with its id at the end
    HugeAnswerBack,
    /// Lines on stderr
    Stderr,
    /// One stderr line without an end
    StderrRaw,
    /// Notifications
    Notifications,
    /// Requests from the server
    Pings,
    /// Tools on one page
    Tools,
    /// Tools on many pages
    ToolPages,
}

/// Measurement, printed as one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) baseline_kib: u64,
    pub(crate) peak_kib: u64,
    /// Amount of the flood, as far as it can be counted.
    #[serde(rename = "came")]
    pub(crate) received: u64,
}

impl Flood {
    /// Arguments of the server. The flood comes with the first request after the warm-up.
    fn args(self, effort: Effort) -> Vec<String> {
        let size = effort.select("64MiB", "1GiB");
        let n_messages = effort.select(600_000, 10_000_000);
        let n_pings = effort.select(500_000, 5_000_000);
        let nth = N_WARM + 1;
        let plan = match self {
            Self::OpenLine => format!("call:{nth}=huge({size},open)"),
            Self::LongLine => format!("call:{nth}=huge({size})"),
            Self::HugeAnswer => format!("call:{nth}=huge({size},front)"),
            Self::HugeAnswerBack => format!("call:{nth}=huge({size},back)"),
            Self::Stderr => format!("call:{nth}=stderr({size})"),
            Self::StderrRaw => format!("call:{nth}=stderr({size},raw)"),
            Self::Notifications => format!("call:{nth}=notify({n_messages})"),
            Self::Pings => format!("call:{nth}=ping({n_pings})"),
            Self::Tools | Self::ToolPages => String::new(),
        };
        let extra = match self {
            // 30 MB, just below the line limit.
            Self::Tools => "--tools 50000 --schema-bytes 512",
            Self::ToolPages => "--tools 50000 --schema-bytes 2KiB --page-size 1000",
            _ => "",
        };
        let args = ["--plan", &plan].into_iter().chain(extra.split_whitespace());
        args.map(str::to_owned).collect()
    }
}

/// Runs a flood against this process and measures the memory.
pub(crate) async fn measure(
    flood: Flood,
    effort: Effort,
    marker: &str,
) -> anyhow::Result<Measured> {
    let args = flood.args(effort);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let peer = ServerScript::new(marker, &args)?.connect(CALL_TIMEOUT).await?;
    for _ in 0..N_WARM {
        peer.echo("warm", "0", CALL_TIMEOUT).await?;
    }
    let baseline_kib = memory_kib(std::process::id(), "status", "VmRSS")?;
    // From here on, `VmHWM` covers only the flood.
    reset_peak_memory(std::process::id()).context("cannot reset the peak of resident memory")?;
    let received = run_flood(&peer, flood).await?;
    let peak_kib = memory_kib(std::process::id(), "status", "VmHWM")?;
    peer.echo("after", "0", CALL_TIMEOUT).await.context("the server does not answer any more")?;
    peer.transport.close().await;
    Ok(Measured { baseline_kib, peak_kib, received })
}

async fn run_flood(peer: &Peer, flood: Flood) -> anyhow::Result<u64> {
    let echo = async |text: &str, call_timeout| peer.echo(text, "0", call_timeout).await;
    match flood {
        Flood::OpenLine => {
            // The junk swallows the response behind it, so the server answers again one call later.
            let first = echo("flood", NO_RESPONSE_TIMEOUT).await;
            ensure!(first.is_err(), "an answer without an end");
            let next = echo("next", NO_RESPONSE_TIMEOUT).await;
            ensure!(next.is_err(), "an answer behind the junk");
        }
        Flood::LongLine | Flood::HugeAnswer | Flood::HugeAnswerBack => {
            ensure!(echo("flood", CALL_TIMEOUT).await.is_err(), "an answer over the limit");
        }
        Flood::Tools | Flood::ToolPages => return count_tools(peer).await,
        Flood::Stderr | Flood::StderrRaw | Flood::Notifications | Flood::Pings => {
            echo("flood", CALL_TIMEOUT).await?;
        }
    }
    let stats = peer.transport.stats();
    Ok(match flood {
        Flood::Stderr | Flood::StderrRaw => stats.stderr.len() as u64,
        Flood::Notifications => peer.n_notifications(),
        Flood::Pings => stats.messages,
        _ => stats.oversize,
    })
}

/// Follows the pages of `tools/list`, decoding only cursors.
async fn count_tools(peer: &Peer) -> anyhow::Result<u64> {
    let mut n_tools = 0;
    let mut params = json!({});
    loop {
        let page = peer.request("tools/list", &params, CALL_TIMEOUT).await?;
        let Page { tools, next_cursor } = page.decode()?;
        n_tools += tools.len() as u64;
        match next_cursor {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return Ok(n_tools),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tools: Vec<IgnoredAny>,
    next_cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(baseline_kib: u64, peak_kib: u64, received: u64, expected: Result<(), &str>) {
        let judged = judge(&Measured { baseline_kib, peak_kib, received });
        assert_eq!(judged, expected.map_err(str::to_owned));
    }

    #[test]
    fn memory_is_judged_by_the_growth() {
        check(5_000, 5_000 + BOUND_KIB, 1, Ok(()));
        check(5_000, 4_000, 1, Ok(()));
        check(
            5_000,
            5_001 + BOUND_KIB,
            1,
            Err("the peak of 54153 KiB lies more than 49152 KiB above 5000 KiB"),
        );
        check(5_000, 5_000, 0, Err("no flood arrived, so nothing was tested"));
    }

    #[test]
    fn flood_comes_after_the_warm_up() {
        let check = |flood: Flood, effort, expected: &[&str]| {
            assert_eq!(flood.args(effort), expected);
        };
        check(Flood::OpenLine, Effort::Quick, &["--plan", "call:4=huge(64MiB,open)"]);
        check(Flood::Notifications, Effort::Full, &["--plan", "call:4=notify(10000000)"]);
        check(
            Flood::Tools,
            Effort::Full,
            &["--plan", "", "--tools", "50000", "--schema-bytes", "512"],
        );
    }
}
