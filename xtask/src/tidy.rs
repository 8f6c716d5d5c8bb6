//! `cargo xtask tidy`: checks that clippy cannot do, on the whole tree.
//!
//! A test below runs it on this repository, so `cargo test` covers it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::commands::no_arguments;
use crate::rules::{
    Finding, dependencies, forbidden, layers, machine_paths, specs_ledger, transcripts,
};
use crate::source_tree::Source;
use crate::subprocess::{ExitResult, Subprocess};
use crate::{public_api, source_tree};

pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    no_arguments("tidy", args)?;
    let sources = source_tree::read(root)?;
    let found = findings(&sources, &metadata(root)?)?;
    let mut lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    lines.extend(public_api::differences(root)?);
    for line in &lines {
        crate::print(line);
    }
    crate::print(&format!("tidy: {} files, {} findings", sources.len(), lines.len()));
    Ok(if lines.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Output of `cargo metadata`.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let command = Subprocess::new("cargo", root, Duration::from_mins(2));
    let command = command.args(["metadata", "--format-version", "1", "--no-deps"]);
    let (exit, text) = command.read()?;
    ensure!(exit == ExitResult::Success, "`{}`: {exit}", command.command_line());
    serde_json::from_str(&text).with_context(|| format!("`{}` is not JSON", command.command_line()))
}

/// All findings, sorted by path and line.
fn findings(sources: &[Source], metadata: &Value) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    let mut functions = BTreeSet::new();
    for Source { path, text } in sources {
        found.extend(machine_paths::findings(path, text));
        if is_rust(path) {
            found.extend(forbidden::findings(path, text));
            functions.extend(specs_ledger::functions(text));
        }
        if transcripts::is_transcript(path) {
            found.extend(transcripts::findings(path, text));
        }
    }
    found.extend(specs_ledger::findings(text_of(sources, specs_ledger::PAGE)?, &functions));
    let (manifest, page) = (dependencies::MANIFEST, dependencies::PAGE);
    found.extend(dependencies::findings(text_of(sources, manifest)?, text_of(sources, page)?));
    let manifests = sources.iter().filter(|source| source.path.ends_with("/Cargo.toml"));
    let manifests: BTreeMap<String, String> =
        manifests.map(|manifest| (manifest.path.clone(), manifest.text.clone())).collect();
    found.extend(layers::findings(metadata, &manifests)?);
    found.sort();
    Ok(found)
}

fn text_of<'a>(sources: &'a [Source], path: &str) -> Result<&'a str> {
    let source = sources.iter().find(|source| source.path == path);
    source.map(|source| source.text.as_str()).with_context(|| format!("{path} is missing"))
}

fn is_rust(path: &str) -> bool {
    (path.starts_with("crates/") || path.starts_with("xtask/"))
        && source_tree::extension(path) == "rs"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::assert_findings;

    #[test]
    fn repository_is_tidy() {
        let root = source_tree::root();
        let found =
            findings(&source_tree::read(&root).unwrap(), &metadata(&root).unwrap()).unwrap();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn every_rule_is_applied_and_every_finding_is_shown() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let specs =
            "| requirement | where | test | note |\n|---|---|---|---|\n| a | b | `gone` | |";
        let rust = "#[ignore]\n";
        let sources = [
            source("crates/a/src/lib.rs", rust),
            source("crates/toolrack-client/tests/transcripts/a.txt", "hello"),
            source(".npmrc", "registry=x"),
            source("docs/internal/specs.md", specs),
            source("docs/dependencies.md", ""),
            source("Cargo.toml", "[workspace.dependencies]\nbytes = \"1\"\n"),
        ];
        let package = json!({"name": "a", "manifest_path": "/r/a/Cargo.toml", "dependencies": []});
        let metadata = json!({"packages": [package], "workspace_root": "/r"});
        assert_findings(
            &findings(&sources, &metadata).unwrap(),
            &[
                ".npmrc:1: machine: leave the registry to the user's own `.npmrc`",
                "Cargo.toml:2: dependency: give `bytes` a row in docs/dependencies.md: what for, why this one",
                "a/Cargo.toml:1: layer: give `a` a layer in ARCHITECTURE.md and in `layers.rs`",
                "crates/a/src/lib.rs:1: ignore: assert what happens today, or mark the skip as CONTRIBUTING.md says",
                "crates/toolrack-client/tests/transcripts/a.txt:1: transcript: begin with `# `, `> `, `< `, `= ` or `! `",
                "docs/internal/specs.md:3: coverage: no function `gone` exists; correct the name",
            ],
        );
    }
}
