//! `cargo xtask tidy`: the rules of STYLE.md that a program can check, on the whole tree.
//!
//! The test at the end runs it on this repository, so `cargo test` is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::child::{Chore, Ending};
use crate::rules::{Finding, ban, coverage, dependency, layer, machine, shape, transcript};
use crate::tree::Source;
use crate::{printer, rust_text, tree};

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let sources = tree::read(root)?;
    let found = findings(&sources, &metadata(root)?)?;
    for finding in &found {
        printer::say(&finding.to_string());
    }
    printer::say(&format!("tidy: {} files, {} findings", sources.len(), found.len()));
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `cargo metadata` says of the crates of the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let chore = Chore::new("cargo", root, Duration::from_mins(2));
    let chore = chore.args(["metadata", "--format-version", "1", "--no-deps"]);
    let (ending, text) = chore.read()?;
    ensure!(ending == Ending::Success, "`{}`: {ending}", chore.line());
    serde_json::from_str(&text).with_context(|| format!("`{}` is not JSON", chore.line()))
}

/// Every finding at once, sorted by place.
fn findings(sources: &[Source], metadata: &Value) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    let mut functions = BTreeSet::new();
    for Source { path, text } in sources {
        found.extend(machine::findings(path, text));
        if is_rust(path) {
            let split = rust_text::split(text);
            found.extend(shape::findings(path, text));
            found.extend(ban::findings(path, &split));
            functions.extend(coverage::functions(&split.code));
        }
        if transcript::is_transcript(path) {
            found.extend(transcript::findings(path, text));
        }
    }
    found.extend(coverage::findings(text_of(sources, coverage::PAGE)?, &functions));
    let (manifest, page) = (dependency::MANIFEST, dependency::PAGE);
    found.extend(dependency::findings(text_of(sources, manifest)?, text_of(sources, page)?));
    let manifests = sources.iter().filter(|it| it.path.ends_with("/Cargo.toml"));
    let manifests: BTreeMap<String, String> =
        manifests.map(|it| (it.path.clone(), it.text.clone())).collect();
    found.extend(layer::findings(metadata, &manifests)?);
    found.sort();
    Ok(found)
}

fn text_of<'a>(sources: &'a [Source], path: &str) -> Result<&'a str> {
    let source = sources.iter().find(|it| it.path == path);
    source.map(|it| it.text.as_str()).with_context(|| format!("{path} is missing"))
}

fn is_rust(path: &str) -> bool {
    (path.starts_with("crates/") || path.starts_with("xtask/")) && tree::extension(path) == "rs"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::assert_findings;

    #[test]
    fn repository_is_tidy() {
        let root = tree::root();
        let found = findings(&tree::read(&root).unwrap(), &metadata(&root).unwrap()).unwrap();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn every_rule_is_applied_and_every_finding_is_shown() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let specs =
            "| requirement | where | test | note |\n|---|---|---|---|\n| a | b | `gone` | |";
        let rust = "unsafe {}\n";
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
                "a/Cargo.toml:1: layer: give `a` a layer in ARCHITECTURE.md and in `layer.rs`",
                "crates/a/src/lib.rs:1: header: begin with `//!` and say what the file is for",
                "crates/a/src/lib.rs:1: unsafe: move it to `crates/toolrack-stdio/src/sys`, behind a safe function",
                "crates/toolrack-client/tests/transcripts/a.txt:1: transcript: begin with `# `, `> `, `< `, `= ` or `! `",
                "docs/internal/specs.md:3: coverage: no function `gone` exists; correct the name",
            ],
        );
    }
}
