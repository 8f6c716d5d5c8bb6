//! Layer table: a crate depends on lower layers only, and only the top layer uses `anyhow`.
//!
//! Reads `cargo metadata`, so that no spelling of a dependency escapes it. Dev-dependencies are exempt.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Finding, numbered};

/// Product crates and their layers, lowest first.
const LAYERS: [(&str, u8); 15] = [
    ("toolrack-transport", 0),
    ("toolrack-mcp", 0),
    ("toolrack-config", 1),
    ("toolrack-platform", 1),
    ("toolrack-stdio", 2),
    ("toolrack-http", 2),
    ("toolrack-auth", 2),
    ("toolrack-client", 3),
    ("toolrack-manager", 4),
    ("toolrack-service", 5),
    ("toolrack-gateway", 5),
    ("toolrack-rig", 5),
    ("toolrack", 6),
    ("toolrack-daemon", 6),
    ("toolrack-cli", 7),
];

/// Crates outside of the product: they may use all of it, and the product uses none of them.
const OUTSIDE: [&str; 8] = [
    "toolrack-demo",
    "toolrack-testkit",
    "toolrack-fuzz",
    "toolrack-conformance",
    "toolrack-bench",
    "toolrack-reliability",
    "toolrack-rmcp",
    "xtask",
];

/// Allowed exceptions: from, to, reason.
const EXCEPTIONS: [(&str, &str, &str); 1] =
    [("toolrack-cli", "toolrack-demo", "the demo server ships in the program")];

/// The first layer that may use `anyhow`, because no code above it matches on errors.
const ANYHOW_FROM: u8 = 7;

/// One dependency of one crate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
}

/// Violations of the table. `manifests` has the text of each `Cargo.toml`, for line numbers.
pub(crate) fn findings(
    metadata: &Value,
    manifests: &BTreeMap<String, String>,
) -> Result<Vec<Finding>> {
    let packages = metadata.get("packages").and_then(Value::as_array).context("no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| text(package, "name")).collect();
    let mut found = Vec::new();
    for package in packages {
        let name = text(package, "name").context("a package without a name")?;
        let path = manifest_path(metadata, package).context("a package without a manifest")?;
        let manifest = manifests.get(&path).map_or("", String::as_str);
        if layer(name).is_none() && !OUTSIDE.contains(&name) {
            let advice = format!("give `{name}` a layer in ARCHITECTURE.md and in `layers.rs`");
            found.push(Finding::new(&path, 1, "layer", advice));
        }
        for edge in edges(name, package) {
            if let Some(advice) = fault(&edge, &names) {
                let line = numbered(manifest).find(|(_, line)| names_dependency(line, edge.to));
                let line = line.map_or(1, |(line, _)| line);
                found.push(Finding::new(&path, line, "layer", advice));
            }
        }
    }
    Ok(found)
}

fn edges<'a>(from: &'a str, package: &'a Value) -> impl Iterator<Item = Edge<'a>> {
    let listed = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
    let shipped = listed.filter(|dependency| text(dependency, "kind") != Some("dev"));
    shipped.filter_map(move |dependency| Some(Edge { from, to: text(dependency, "name")? }))
}

fn fault(edge: &Edge<'_>, workspace: &[&str]) -> Option<String> {
    let Edge { from, to } = edge;
    let from_layer = layer(from)?;
    if *to == "anyhow" && from_layer < ANYHOW_FROM {
        return Some(format!("`anyhow` is for layer {ANYHOW_FROM}; define an error enum here"));
    }
    let is_excepted = EXCEPTIONS.iter().any(|(a, b, _reason)| a == from && b == to);
    if !workspace.contains(to) || is_excepted {
        return None;
    }
    match layer(to) {
        None => Some(format!("`{to}` is not part of the product; use it in tests only")),
        Some(to_layer) if to_layer >= from_layer => Some(format!(
            "`{from}` (layer {from_layer}) may not depend on `{to}` (layer {to_layer})"
        )),
        Some(_) => None,
    }
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, layer)| *layer)
}

/// The path of the manifest below the workspace root.
fn manifest_path(metadata: &Value, package: &Value) -> Option<String> {
    let path = text(package, "manifest_path")?;
    let root = text(metadata, "workspace_root")?;
    Some(path.strip_prefix(root).unwrap_or(path).trim_start_matches('/').to_owned())
}

fn names_dependency(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
}

fn text<'a>(value: &'a Value, member: &str) -> Option<&'a str> {
    value.get(member).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::assert_findings;

    /// `edges` is one `from to kind` per entry, `kind` as cargo gives it.
    #[track_caller]
    fn check(edges: &[(&str, &str, Option<&str>)], expected: &[&str]) {
        let mut packages: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (from, to, kind) in edges {
            packages.entry(from).or_default().push(json!({"name": to, "kind": kind}));
            packages.entry(to).or_default();
        }
        packages.remove("anyhow");
        let package = |(name, dependencies)| json!({"name": name, "manifest_path": format!("/r/{name}/Cargo.toml"), "dependencies": dependencies});
        let packages: Vec<Value> = packages.into_iter().map(package).collect();
        let metadata = json!({"packages": packages, "workspace_root": "/r"});
        let manifest = "[dependencies]\nanyhow = \"1\"\ntoolrack-client.workspace = true\n";
        let manifests = [("toolrack-transport/Cargo.toml".to_owned(), manifest.to_owned())].into();
        assert_findings(&findings(&metadata, &manifests).unwrap(), expected);
    }

    #[test]
    fn dependencies_point_down() {
        check(&[("toolrack-client", "toolrack-stdio", None)], &[]);
        check(
            &[("toolrack-transport", "toolrack-client", None)],
            &[
                "toolrack-transport/Cargo.toml:3: layer: `toolrack-transport` (layer 0) may not depend on `toolrack-client` (layer 3)",
            ],
        );
        check(
            &[("toolrack-mcp", "toolrack-transport", None)],
            &[
                "toolrack-mcp/Cargo.toml:1: layer: `toolrack-mcp` (layer 0) may not depend on `toolrack-transport` (layer 0)",
            ],
        );
        check(&[("toolrack-transport", "toolrack-client", Some("dev"))], &[]);
        check(
            &[("toolrack-stdio", "toolrack-client", Some("build"))],
            &[
                "toolrack-stdio/Cargo.toml:1: layer: `toolrack-stdio` (layer 2) may not depend on `toolrack-client` (layer 3)",
            ],
        );
    }

    #[test]
    fn crates_outside_the_product_are_used_in_tests_only() {
        check(&[("toolrack-testkit", "toolrack-client", None)], &[]);
        check(&[("toolrack-client", "toolrack-testkit", Some("dev"))], &[]);
        check(&[("toolrack-cli", "toolrack-demo", None)], &[]);
        check(
            &[("toolrack-client", "toolrack-testkit", None)],
            &[
                "toolrack-client/Cargo.toml:1: layer: `toolrack-testkit` is not part of the product; use it in tests only",
            ],
        );
    }

    #[test]
    fn every_crate_has_a_layer() {
        check(
            &[("toolrack-extra", "toolrack-transport", None)],
            &[
                "toolrack-extra/Cargo.toml:1: layer: give `toolrack-extra` a layer in ARCHITECTURE.md and in `layers.rs`",
            ],
        );
    }

    #[test]
    fn only_the_top_layer_uses_anyhow() {
        check(&[("toolrack-cli", "anyhow", None), ("xtask", "anyhow", None)], &[]);
        check(&[("toolrack-client", "anyhow", Some("dev"))], &[]);
        check(
            &[("toolrack-transport", "anyhow", None)],
            &[
                "toolrack-transport/Cargo.toml:2: layer: `anyhow` is for layer 7; define an error enum here",
            ],
        );
    }
}
