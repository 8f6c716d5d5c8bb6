//! Machine and commit of a measurement, and writing of the benchmark pages.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use anyhow::Context as _;

use crate::results::Results;
use crate::scenario::Subject;
use crate::{client_process, pages};

const FILE: &str = "BENCHMARKS.md";

/// Folder with all tables and charts.
const FOLDER: &str = "docs/benchmarks";

/// Writes the tables, the chart and the section of BENCHMARKS.md about one subject.
pub(crate) fn write_benchmarks(
    subject: Subject,
    results: &Results,
    body: &str,
) -> anyhow::Result<()> {
    let root = root()?;
    let run = RunInfo::now(&root)?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let slug = pages::slug(subject);
    let page = pages::raw_page(subject, &run.provenance(), &run.machine(), body);
    replace(&folder.join(format!("{slug}.md")), &page)?;
    let chart = pages::chart(results, subject);
    if let Some(chart) = &chart {
        replace(&folder.join(format!("{slug}.svg")), &chart.to_svg())?;
    }
    let Some(table) = pages::short_table(results, subject) else { return Ok(()) };
    let path = root.join(FILE);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let section = pages::section(subject, &run.provenance(), &table, chart.is_some());
    replace(&path, &pages::with_section(&before, subject, &section))
}

/// The workspace that contains the current directory.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|ancestor| ancestor.join("Cargo.lock").exists());
    Ok(root.context("not inside a workspace")?.to_owned())
}

/// Replaces a file atomically, so that a reader never sees half of it.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("md.new");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    Ok(())
}

/// Everything that the figures depend on.
#[derive(Debug)]
struct RunInfo {
    date: String,
    commit: String,
    n_cores: usize,
    cpu: String,
    kernel: String,
    rustc: String,
    command: String,
}

impl RunInfo {
    fn now(root: &Path) -> anyhow::Result<Self> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        let words: Vec<String> = std::env::args().skip(1).collect();
        Ok(Self {
            date: date(since_epoch.as_secs() / (24 * 60 * 60)),
            commit: commit(root),
            n_cores: thread::available_parallelism()?.get(),
            cpu: cpu_model(&cpus).unwrap_or("unknown").to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            rustc: client_process::first_line_of("rustc", &["--version"])
                .context("rustc does not run")?,
            command: format!("cargo xtask bench {}", words.join(" ")),
        })
    }

    fn provenance(&self) -> String {
        let Self { date, commit, command, .. } = self;
        format!("Measured at commit {commit} on {date} with `{command}`.")
    }

    fn machine(&self) -> String {
        let Self { n_cores, cpu, kernel, rustc, .. } = self;
        format!("Machine: {n_cores} cores ({cpu}), Linux {kernel}, {rustc}.")
    }
}

/// The commit that was measured, marked if product code differs from it.
fn commit(root: &Path) -> String {
    let root = root.to_string_lossy();
    let Some(commit) =
        client_process::first_line_of("git", &["-C", &root, "rev-parse", "--short", "HEAD"])
    else {
        return "unknown".to_owned();
    };
    let changes = ["-C", &root, "status", "--porcelain", "--", "crates", "Cargo.lock"];
    match client_process::first_line_of("git", &changes) {
        Some(_) => format!("{commit} with local changes"),
        None => commit,
    }
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
    fn provenance_names_commit_date_and_command() {
        let run = RunInfo {
            date: "2026-11-15".to_owned(),
            commit: "abc1234".to_owned(),
            n_cores: 2,
            cpu: "Some CPU".to_owned(),
            kernel: "6.18".to_owned(),
            rustc: "rustc 1.95.0".to_owned(),
            command: "cargo xtask bench stdio".to_owned(),
        };
        let expected = "Measured at commit abc1234 on 2026-11-15 with `cargo xtask bench stdio`.";
        assert_eq!(run.provenance(), expected);
        assert_eq!(run.machine(), "Machine: 2 cores (Some CPU), Linux 6.18, rustc 1.95.0.");
    }

    #[test]
    fn cpu_model_is_parsed() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU\n"), Some("Fast CPU"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }
}
