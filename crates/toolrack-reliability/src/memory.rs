//! G05: whatever a server sends, our memory stays within bounds, and the same server answers afterwards.

use std::time::Duration;

use clap::ValueEnum as _;
use toolrack_testkit::Marker;

use crate::findings::Findings;
use crate::flood::{Flood, Measured};
use crate::gate::Effort;
use crate::print;
use crate::process::{self, end_marked, listen};
use crate::random::Seeds;

/// How far the peak may lie above what a client with an open line needs.
const BOUND_KIB: u64 = 48 << 10;

/// How long one flood may take.
const LIMIT: Duration = Duration::from_mins(6);

pub(crate) fn run(effort: Effort, seeds: &Seeds) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let seed = seeds.all().first().copied().unwrap_or_default();
    findings.count("floods", Flood::value_variants().len() as u64);
    findings.count("bound_kib", BOUND_KIB);
    for flood in Flood::value_variants() {
        let name = value_name(*flood);
        print::talk(format!("G05: {name}"));
        let marker = Marker::new();
        let effort = effort.of("quick", "full");
        let mut child = process::ourselves()?;
        child.args(["measure", &name, "--effort", effort, "--marker", marker.value()]);
        let said = listen(&mut child, LIMIT)?;
        let figure = name.replace('-', "_");
        match serde_json::from_str::<Measured>(said.printed.trim()) {
            Ok(measured) => {
                let over_kib = measured.peak_kib.saturating_sub(measured.baseline_kib);
                findings.count(&format!("{figure}_kib"), over_kib);
                findings.count(&format!("{figure}_came"), measured.came);
                if let Err(what) = judge(&measured) {
                    findings.fail(seed, format!("{name}: {what}"));
                }
            }
            Err(_) => findings.fail(seed, format!("{name}: nothing was measured: {}", said.ending)),
        }
        let left = end_marked(&marker);
        if !left.is_empty() {
            findings.fail(seed, format!("{name}: left behind and ended: {left:?}"));
        }
    }
    Ok(findings)
}

fn judge(measured: &Measured) -> Result<(), String> {
    let Measured { baseline_kib, peak_kib, came } = measured;
    if *came == 0 {
        return Err("no flood came, so nothing was put to the test".to_owned());
    }
    if peak_kib.saturating_sub(*baseline_kib) > BOUND_KIB {
        return Err(format!(
            "the peak of {peak_kib} KiB lies more than {BOUND_KIB} KiB above {baseline_kib} KiB"
        ));
    }
    Ok(())
}

fn value_name(flood: Flood) -> String {
    flood
        .to_possible_value()
        .map(|possible_value| possible_value.get_name().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(baseline_kib: u64, peak_kib: u64, came: u64, expected: Result<(), &str>) {
        let judged = judge(&Measured { baseline_kib, peak_kib, came });
        assert_eq!(judged, expected.map_err(str::to_owned));
    }

    #[test]
    fn memory_is_judged_by_what_the_flood_added() {
        check(5_000, 5_000 + BOUND_KIB, 1, Ok(()));
        check(5_000, 4_000, 1, Ok(()));
        check(
            5_000,
            5_001 + BOUND_KIB,
            1,
            Err("the peak of 54153 KiB lies more than 49152 KiB above 5000 KiB"),
        );
        check(5_000, 5_000, 0, Err("no flood came, so nothing was put to the test"));
    }
}
