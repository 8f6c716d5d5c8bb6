//! `cargo xtask public-api`: list of the public items of the library crate `toolrack`.
//!
//! The list comes from rustdoc, which resolves every re-export of another crate, also through globs: its page of all
//! items names each one by kind and path. Only a re-exported crate has no page and is found in the index of its module.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::commands::has_flag;
use crate::release_program::target_dir;
use crate::subprocess::{ExitResult, Subprocess};
use crate::tidy;

const CRATE: &str = "toolrack";
pub(crate) const PAGE: &str = "docs/internal/public-api.txt";
const DOC_LIMIT: Duration = Duration::from_mins(45);

pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let write = has_flag("public-api", args, "--write")?;
    let items = public_items(root)?;
    if write {
        let lines: Vec<&str> = items.iter().map(String::as_str).collect();
        crate::source_tree::write(&root.join(PAGE), &format!("{}\n", lines.join("\n")))?;
        crate::print(&format!("{PAGE}: {} items", items.len()));
        return Ok(ExitCode::SUCCESS);
    }
    let differences = compare(root, &items)?;
    for line in &differences {
        crate::print(line);
    }
    crate::print(&format!("public API: {} items", items.len()));
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Differences between the library and the list, with the command that updates the list.
pub(crate) fn differences(root: &Path) -> Result<Vec<String>> {
    compare(root, &public_items(root)?)
}

fn compare(root: &Path, items: &BTreeSet<String>) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let listed: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let added = items.difference(&listed).map(|item| format!("{PAGE}: new: {item}"));
    let removed = listed.difference(items).map(|item| format!("{PAGE}: gone: {item}"));
    let mut lines: Vec<String> = added.chain(removed).collect();
    if !lines.is_empty() {
        lines.push(format!("{PAGE}: run `cargo xtask public-api --write` if this is intended"));
    }
    Ok(lines)
}

/// Kind and path of every item that is reachable from the root of the library.
fn public_items(root: &Path) -> Result<BTreeSet<String>> {
    let doc = Subprocess::new("cargo", root, DOC_LIMIT);
    let doc = doc.args(["doc", "--quiet", "--no-deps", "--lib", "--package", CRATE]);
    let exit = doc.attached()?;
    ensure!(exit == ExitResult::Success, "`{}`: {exit}", doc.command_line());
    let folder = target_dir(&tidy::metadata(root)?)?.join("doc").join(CRATE);
    let read = |page: &str| fs::read_to_string(folder.join(page)).with_context(|| page.to_owned());
    let mut items = listed_items(&read("all.html")?);
    let modules: BTreeSet<String> = items.iter().flat_map(|item| modules(item)).collect();
    for module in modules {
        let path = module.replace("::", "/");
        let index = path.strip_prefix(CRATE).unwrap_or(&path).trim_start_matches('/');
        let index = format!("{index}/index.html");
        items.extend(crate_reexports(&module, &read(index.trim_start_matches('/'))?));
        items.insert(format!("mod {module}"));
    }
    Ok(items)
}

/// Items on the page of all items, which links to `module/kind.Name.html`.
fn listed_items(page: &str) -> BTreeSet<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let items = links.filter_map(|link| {
        let (folder, file) = link.rsplit_once('/').unwrap_or(("", link));
        let (kind, name) = file.strip_suffix(".html")?.split_once('.')?;
        let path = format!("{CRATE}/{folder}/{name}").replace("//", "/").replace('/', "::");
        (!folder.starts_with("..")).then(|| format!("{kind} {path}"))
    });
    items.collect()
}

/// Every module above an item.
fn modules(item: &str) -> Vec<String> {
    let path = item.split_once(' ').map_or(item, |(_, path)| path);
    path.match_indices("::").filter_map(|(at, _)| path.get(..at)).map(str::to_owned).collect()
}

fn crate_reexports(module: &str, index: &str) -> Vec<String> {
    let ids = index.split("id=\"reexport.").skip(1).filter_map(|rest| rest.split('"').next());
    ids.map(|name| format!("use {module}::{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_from_the_pages_of_rustdoc() {
        let page = "<link href=\"../static.files/a.b.html\"><a href=\"#structs\">\
                    <a href=\"struct.A.html\">A</a><a href=\"mcp/x/fn.b.html\">mcp::x::b</a>";
        let items: Vec<String> = listed_items(page).into_iter().collect();
        assert_eq!(items, ["fn toolrack::mcp::x::b", "struct toolrack::A"]);
        assert_eq!(modules(&items[0]), ["toolrack", "toolrack::mcp", "toolrack::mcp::x"]);
        let index = "<h2 id=\"reexports\"><dt id=\"reexport.serde_json\"><code>";
        assert_eq!(crate_reexports("toolrack", index), ["use toolrack::serde_json"]);
    }
}
