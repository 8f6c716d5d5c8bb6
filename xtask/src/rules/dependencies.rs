//! Dependency table: every workspace dependency has a row in `docs/dependencies.md`, and vice versa.

use super::{Finding, numbered};

pub(crate) const PAGE: &str = "docs/dependencies.md";
pub(crate) const MANIFEST: &str = "Cargo.toml";

pub(crate) fn findings(manifest: &str, page: &str) -> Vec<Finding> {
    let dependencies: Vec<(usize, &str)> = dependencies(manifest).collect();
    let rows: Vec<(usize, &str)> =
        numbered(page).filter_map(|(n, line)| Some((n, row(line)?))).collect();
    let has = |list: &[(usize, &str)], name: &str| list.iter().any(|(_, listed)| *listed == name);
    let missing = dependencies.iter().filter(|(_, name)| !has(&rows, name)).map(|(line, name)| {
        let advice = format!("give `{name}` a row in {PAGE}: what for, why this one");
        Finding::new(MANIFEST, *line, "dependency", advice)
    });
    let stale = rows.iter().filter(|(_, name)| !has(&dependencies, name)).map(|(line, name)| {
        let advice = format!("`{name}` is not a dependency of the workspace; remove the row");
        Finding::new(PAGE, *line, "dependency", advice)
    });
    missing.chain(stale).collect()
}

/// Entries of `[workspace.dependencies]`, without our own crates.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let from = numbered(manifest).skip_while(|(_, line)| *line != "[workspace.dependencies]");
    let table = from.skip(1).take_while(|(_, line)| !line.starts_with('['));
    let names = table.filter_map(|(number, line)| Some((number, line.split_once([' ', '='])?.0)));
    names.filter(|(_, name)| !name.starts_with("toolrack") && !name.starts_with('#'))
}

/// The name in backticks in the first cell of a table row.
fn row(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_findings;

    #[test]
    fn dependencies_and_rows_go_together() {
        let manifest = "[workspace]\nx = 1\n[workspace.dependencies]\ntoolrack-transport = {}\n\n\
                        bytes = \"1\"\n# why\n\nlibc = \"0.2\"\n\
                        [workspace.lints]\nunsafe_code = \"deny\"\n";
        let page = "| dependency | what for |\n|---|---|\n| `bytes` | x |\n| `gone` | y |\n";
        assert_findings(
            &findings(manifest, page),
            &[
                "Cargo.toml:9: dependency: give `libc` a row in docs/dependencies.md: what for, why this one",
                "docs/dependencies.md:4: dependency: `gone` is not a dependency of the workspace; remove the row",
            ],
        );
    }
}
