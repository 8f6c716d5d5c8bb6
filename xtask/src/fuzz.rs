//! `cargo xtask fuzz`: builds the fuzz targets with libFuzzer on nightly and runs them in turn.
//!
//! `fuzz/src/bin` has one program for each crate; its targets are chosen by the variable `FUZZ_TARGET`. A target is a
//! folder below `fuzz/corpus`. Programs, new inputs and crashes are kept below `target/fuzz`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context as _, Result, bail, ensure};

use crate::commands::unexpected;
use crate::release_program::target_dir;
use crate::subprocess::{ExitResult, Subprocess, is_installed};
use crate::tidy;

const BUILD_LIMIT: Duration = Duration::from_mins(90);

/// Time of a program beside the fuzzing itself: it reads the corpus first.
const SPARE_TIME: Duration = Duration::from_mins(2);

/// What libFuzzer needs of the compiler: counters at every edge and callbacks at comparisons. No sanitizer: the
/// targets are safe Rust, and without one they are several times as fast.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// Longest input, in bytes. Short inputs are fast, and a corpus file may be longer.
const MAX_INPUT_BYTES: usize = 4096;

/// Longest inputs of targets with a limit that is larger: the head of a response, with trailers; a field of an event.
const LONG_INPUTS: [(&str, usize); 3] =
    [("http1_response", 96 << 10), ("line_decoder", 8 << 10), ("sse", 16 << 10)];

/// Programs and their targets.
const PROGRAMS: [(&str, &[&str]); 10] = [
    ("http", &["http1_response", "http1_differential", "sse", "gzip"]),
    ("transport", &["json_rpc", "json_string", "sanitize", "redact", "redact_json", "hidden_text"]),
    ("stdio", &["line_decoder", "guardian_protocol"]),
    ("auth", &["www_authenticate", "oauth_metadata", "oauth_callback"]),
    ("config", &["config", "interpolate", "duration"]),
    ("service", &["toml_edit"]),
    ("mcp", &["list_page", "call_result", "web_url"]),
    ("gateway", &["gateway_request", "question"]),
    ("daemon", &["merge_patch"]),
    ("cli", &["call_expression", "tool_arguments"]),
];

/// What to do, for all targets or one.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    List,
    /// Fuzzes for this many minutes in all.
    Run(u64),
    /// Runs one file.
    Replay(PathBuf),
    /// Keeps the smallest set of inputs with the same coverage.
    Minimize,
}

/// Figures that libFuzzer prints at the end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Figures {
    n_executions: u64,
    /// Edges and features, as libFuzzer counts them.
    coverage: String,
    corpus: String,
    n_findings: usize,
}

pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let (action, target) = parse(args)?;
    let targets = targets(target.as_deref())?;
    if action == Action::List {
        for (program, target) in &targets {
            crate::print(&format!("{target:<20} {program}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(reason) = missing(root) {
        crate::print_error(&format!("SKIPPED: fuzz: {reason}"));
        return Ok(ExitCode::SUCCESS);
    }
    let folder = target_dir(&tidy::metadata(root)?)?.join("fuzz");
    let programs = build(root, &folder)?;
    let fuzzer = Fuzzer { root: root.to_owned(), folder, programs };
    match action {
        Action::List => Ok(ExitCode::SUCCESS),
        Action::Replay(file) => {
            let [(program, target)] = targets.as_slice() else {
                bail!("name the target of the file: `cargo xtask fuzz --replay FILE TARGET`")
            };
            let exit = fuzzer.program(program, target, SPARE_TIME).args([file]).attached()?;
            Ok(crate::release_program::exit_code(exit))
        }
        Action::Minimize => fuzzer.minimize(&targets),
        Action::Run(minutes) => fuzzer.run_all(&targets, minutes),
    }
}

struct Fuzzer {
    root: PathBuf,
    /// Folder of all that fuzzing writes.
    folder: PathBuf,
    programs: PathBuf,
}

impl Fuzzer {
    fn run_all(&self, targets: &[(&str, &'static str)], minutes: u64) -> Result<ExitCode> {
        let seconds = (minutes * 60 / targets.len() as u64).max(1);
        let mut table = BTreeMap::new();
        for (program, target) in targets {
            table.insert(*target, self.fuzz(program, target, seconds)?);
        }
        crate::print(&format!("\n{}", Table(&table, seconds)));
        let n_findings: usize = table.values().map(|figures| figures.n_findings).sum();
        Ok(if n_findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn fuzz(&self, program: &str, target: &'static str, seconds: u64) -> Result<Figures> {
        let crashes = self.folder_of("crashes", target)?;
        let before = files(&crashes)?;
        let command = self
            .program(program, target, Duration::from_secs(seconds) + SPARE_TIME)
            .args([format!("-max_total_time={seconds}"), max_len(target)])
            .args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=2048", "-verbosity=1"])
            .args([prefix(&crashes)])
            .args([self.folder_of("corpus", target)?, self.corpus(target)]);
        let mut figures = Figures::default();
        let exit = command.stream(|line| figures.read(line))?;
        let found: Vec<PathBuf> =
            files(&crashes)?.into_iter().filter(|file| !before.contains(file)).collect();
        figures.n_findings = found.len().max(usize::from(exit != ExitResult::Success));
        for file in found {
            let file = file.display();
            crate::print_error(&format!(
                "error: {target} fails with {file}\n\
                 hint: replay it with `cargo xtask fuzz --replay {file} {target}`; after the fix, copy it to \
                 fuzz/corpus/{target}/, which `cargo test` replays"
            ));
        }
        Ok(figures)
    }

    /// Merges what fuzzing found into the committed corpus, and drops files that add no coverage.
    fn minimize(&self, targets: &[(&str, &'static str)]) -> Result<ExitCode> {
        for (program, target) in targets {
            let merged = self.folder_of("merged", target)?;
            let command = self
                .program(program, target, BUILD_LIMIT)
                .args(["-merge=1".to_owned(), max_len(target)])
                .args([merged.clone(), self.corpus(target), self.folder_of("corpus", target)?]);
            let exit = command.attached()?;
            ensure!(exit == ExitResult::Success, "`{}`: {exit}", command.command_line());
            crate::print(&format!(
                "{target}: {} files in {}",
                files(&merged)?.len(),
                merged.display()
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn program(&self, program: &str, target: &'static str, limit: Duration) -> Subprocess {
        Subprocess::new(self.programs.join(program), &self.root, limit).env("FUZZ_TARGET", target)
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join("fuzz/corpus").join(target)
    }

    fn folder_of(&self, kind: &str, target: &str) -> Result<PathBuf> {
        let folder = self.folder.join(kind).join(target);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }
}

fn parse(args: &[String]) -> Result<(Action, Option<String>)> {
    let (mut action, mut target) = (None, None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let parsed = match word.as_str() {
            "--list" => Action::List,
            "--minimize" => Action::Minimize,
            "--minutes" => {
                let minutes = words.next().and_then(|minutes| minutes.parse().ok());
                Action::Run(minutes.context("`--minutes` needs a whole number of minutes")?)
            }
            "--replay" => Action::Replay(words.next().context("`--replay` needs a file")?.into()),
            word if word.starts_with('-') || target.is_some() => return unexpected("fuzz", word),
            word => {
                target = Some(word.to_owned());
                continue;
            }
        };
        ensure!(
            action.is_none(),
            "choose one of `--minutes`, `--replay`, `--minimize` and `--list`"
        );
        action = Some(parsed);
    }
    let usage = "how long? `cargo xtask fuzz --minutes N [TARGET]`";
    Ok((action.context(usage)?, target))
}

/// Program and name of the targets: all of them, or one.
fn targets(name: Option<&str>) -> Result<Vec<(&'static str, &'static str)>> {
    let all = PROGRAMS
        .into_iter()
        .flat_map(|(program, targets)| targets.iter().map(move |target| (program, *target)));
    let chosen: Vec<_> =
        all.filter(|(_, target)| name.is_none_or(|name| name == *target)).collect();
    match name {
        Some(name) if chosen.is_empty() => {
            bail!("unknown fuzz target `{name}`; see `cargo xtask fuzz --list`")
        }
        _ => Ok(chosen),
    }
}

/// Why this machine cannot fuzz.
fn missing(root: &Path) -> Option<String> {
    if !is_installed("rustup", root) {
        return Some("`rustup` is not installed, and libFuzzer needs nightly".to_owned());
    }
    let nightly = Subprocess::new("rustup", root, Duration::from_mins(1));
    let nightly = nightly.args(["run", "nightly", "rustc", "--version"]).read();
    if !matches!(nightly, Ok((ExitResult::Success, _))) {
        return Some("libFuzzer needs nightly; run `rustup toolchain install nightly`".to_owned());
    }
    let has_compiler = ["c++", "g++", "clang++"].iter().any(|program| is_installed(program, root));
    (!has_compiler).then(|| "libFuzzer needs a C++ compiler; install `g++`".to_owned())
}

/// Builds all programs and returns their folder.
fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    let rustc = Subprocess::new("rustup", root, Duration::from_mins(1));
    let (_, version) = rustc.args(["run", "nightly", "rustc", "-vV"]).read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` names no host")?;
    let target_dir: OsString = folder.into();
    // With a target, the flags do not apply to build scripts and macros.
    let command = Subprocess::new("rustup", &root.join("fuzz"), BUILD_LIMIT)
        .args(["run", "nightly", "cargo", "build", "--release", "--bins", "--target", host])
        .args([OsString::from("--target-dir"), target_dir])
        .env("RUSTFLAGS", RUSTFLAGS);
    let exit = command.attached()?;
    ensure!(exit == ExitResult::Success, "`{}`: {exit}", command.command_line());
    Ok(folder.join(host).join("release"))
}

fn max_len(target: &str) -> String {
    let longest = LONG_INPUTS.iter().find(|(name, _)| *name == target);
    format!("-max_len={}", longest.map_or(MAX_INPUT_BYTES, |(_, n_bytes)| *n_bytes))
}

fn prefix(folder: &Path) -> OsString {
    let mut argument = OsString::from("-artifact_prefix=");
    argument.push(folder);
    argument.push("/");
    argument
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

impl Figures {
    /// Reads a line of libFuzzer, such as `#8 DONE cov: 20 ft: 31 corp: 4/9b` or `stat::number_of_executed_units: 8`.
    fn read(&mut self, line: &str) {
        let after = |label: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != label);
            words.nth(1).unwrap_or_default()
        };
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.n_executions = count.trim().parse().unwrap_or_default();
        } else if line.starts_with('#') && line.contains(" cov: ") {
            self.coverage = format!("{} / {}", after("cov:"), after("ft:"));
            after("corp:").clone_into(&mut self.corpus);
        }
    }
}

/// Table of the figures, each target having run for so many seconds.
struct Table<'a>(&'a BTreeMap<&'static str, Figures>, u64);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rows, seconds) = self;
        writeln!(f, "| target | executions | exec/s | edges / features | corpus | findings |")?;
        write!(f, "|---|--:|--:|--:|--:|--:|")?;
        for (target, figures) in *rows {
            let Figures { n_executions, coverage, corpus, n_findings } = figures;
            let per_second = n_executions / seconds;
            write!(
                f,
                "\n| {target} | {n_executions} | {per_second} | {coverage} | {corpus} | {n_findings} |"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_choose_an_action_and_a_target() {
        let check = |line: &str, expected: Result<(Action, Option<&str>), &str>| {
            let parsed = parse(&words(line)).map_err(|error| error.to_string());
            let expected = expected.map(|(action, target)| (action, target.map(str::to_owned)));
            assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
        };
        check("--minutes 5", Ok((Action::Run(5), None)));
        check("--minutes 5 sse", Ok((Action::Run(5), Some("sse"))));
        check("sse --minimize", Ok((Action::Minimize, Some("sse"))));
        check("--replay a/b sse", Ok((Action::Replay("a/b".into()), Some("sse"))));
        check("--list", Ok((Action::List, None)));
        check("", Err("how long? `cargo xtask fuzz --minutes N [TARGET]`"));
        check("--minutes x", Err("`--minutes` needs a whole number of minutes"));
        check("--replay", Err("`--replay` needs a file"));
        let both = "choose one of `--minutes`, `--replay`, `--minimize` and `--list`";
        check("--list --minimize", Err(both));
        check("a b", Err("unexpected argument `b` for `fuzz`; see `cargo xtask help`"));
        let unknown = targets(Some("x")).unwrap_err().to_string();
        assert_eq!(unknown, "unknown fuzz target `x`; see `cargo xtask fuzz --list`");
    }

    #[test]
    fn long_inputs_are_those_of_targets_with_large_limits() {
        assert_eq!(max_len("sse"), "-max_len=16384");
        assert_eq!(max_len("json_rpc"), "-max_len=4096");
        let is_target = |name: &str| targets(Some(name)).is_ok();
        assert!(LONG_INPUTS.iter().all(|(name, _)| is_target(name)));
    }

    #[test]
    fn figures_are_read_from_the_output() {
        let mut figures = Figures::default();
        for line in [
            "INFO: seed corpus: files: 8",
            "#8\tINITED cov: 20 ft: 31 corp: 4/9b exec/s: 0 rss: 30Mb",
            "#900\tDONE   cov: 25 ft: 40 corp: 5/19Kb lim: 384 exec/s: 300 rss: 30Mb",
            "stat::number_of_executed_units: 900",
        ] {
            figures.read(line);
        }
        let expected = Figures {
            n_executions: 900,
            coverage: "25 / 40".to_owned(),
            corpus: "5/19Kb".to_owned(),
            n_findings: 0,
        };
        assert_eq!(figures, expected);
        let row = Table(&[("sse", figures)].into(), 3).to_string();
        assert!(row.ends_with("| sse | 900 | 300 | 25 / 40 | 5/19Kb | 0 |"), "{row}");
    }

    #[test]
    fn every_target_has_a_corpus_a_program_and_a_stable_test() {
        let root = crate::source_tree::root();
        let listed: BTreeSet<String> =
            targets(None).unwrap().into_iter().map(|(_, target)| target.to_owned()).collect();
        let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        let names = |folder: &str| -> BTreeSet<String> {
            files(&root.join(folder)).unwrap().into_iter().map(name).collect()
        };
        assert_eq!(listed, names("fuzz/corpus"));
        let programs: BTreeSet<String> =
            PROGRAMS.iter().map(|(program, _)| (*program).to_owned()).collect();
        assert_eq!(programs, names("fuzz/src/bin"));
        let sources = crate::source_tree::read(&root.join("crates")).unwrap();
        for target in listed {
            let entry = format!("(\"{target}\", ");
            assert!(sources.iter().any(|source| source.text.contains(&entry)), "{target}");
        }
    }
}
