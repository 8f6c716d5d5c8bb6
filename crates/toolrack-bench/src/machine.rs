//! Where and when was measured, and BENCHMARKS.md, which says so.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use anyhow::Context as _;

use crate::scenario::Subject;
use crate::{child, document};

const FILE: &str = "BENCHMARKS.md";

/// Rewrites one section of the file at the root of the workspace that the bench was started in.
pub(crate) fn write_benchmarks(subject: Subject, body: &str) -> anyhow::Result<()> {
    let path = root()?.join(FILE);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let section = section(&Surroundings::now()?, document::legend(subject), body);
    replace(&path, &document::with_section(&before, subject, &section))
}

/// The workspace that the bench was started in.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|it| it.join("Cargo.lock").exists());
    Ok(root.context("not inside a workspace")?.to_owned())
}

/// A reader never sees half a file.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("md.new");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(())
}

/// What the numbers depend on.
#[derive(Debug)]
struct Surroundings {
    date: String,
    n_cores: usize,
    cpu: String,
    kernel: String,
    rustc: String,
    command: String,
}

impl Surroundings {
    fn now() -> anyhow::Result<Self> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        let words: Vec<String> = std::env::args().skip(1).collect();
        Ok(Self {
            date: date(since_epoch.as_secs() / (24 * 60 * 60)),
            n_cores: thread::available_parallelism()?.get(),
            cpu: cpu_model(&cpus).unwrap_or("unknown").to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            rustc: child::said_by("rustc", "--version").context("rustc does not answer")?,
            command: format!("cargo xtask bench {}", words.join(" ")),
        })
    }
}

fn section(surroundings: &Surroundings, legend: &str, body: &str) -> String {
    let Surroundings { date, n_cores, cpu, kernel, rustc, command } = surroundings;
    format!(
        "Written by `{command}` on {date}.\n\n\
         Machine: {n_cores} cores ({cpu}), Linux {kernel}, {rustc}.\n\n\
         {legend}\n\n\
         {body}"
    )
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// The day that many days after 1970-01-01.
fn date(days: u64) -> String {
    // Counted in eras of 400 years that begin on 1 March, so that a leap day is the last of its year.
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(days: u64, expected: &str) {
        assert_eq!(date(days), expected);
    }

    #[test]
    fn days_become_dates() {
        check(0, "1970-01-01");
        check(59, "1970-03-01");
        check(11_016, "2000-02-29");
        check(11_017, "2000-03-01");
        check(20_605, "2026-06-01");
        check(20_818, "2026-12-31");
    }

    #[test]
    fn a_section_says_where_it_comes_from() {
        let surroundings = Surroundings {
            date: "2026-11-15".to_owned(),
            n_cores: 2,
            cpu: "Some CPU".to_owned(),
            kernel: "6.18".to_owned(),
            rustc: "rustc 1.95.0".to_owned(),
            command: "cargo xtask bench stdio".to_owned(),
        };
        let expected = "Written by `cargo xtask bench stdio` on 2026-11-15.\n\n\
            Machine: 2 cores (Some CPU), Linux 6.18, rustc 1.95.0.\n\nLegend.\n\n## Table\n";
        assert_eq!(section(&surroundings, "Legend.", "## Table\n"), expected);
    }

    #[test]
    fn the_model_is_found_among_the_facts_about_a_cpu() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU\n"), Some("Fast CPU"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }
}
