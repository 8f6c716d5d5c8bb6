//! Finds paths of one machine and download addresses of registries in any text file.
//!
//! The patterns are concatenated so that this file does not match itself.

use super::{Finding, numbered};

/// Folders that exist on one machine only.
const FOLDERS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Package registries. Each machine chooses its own.
const HOSTS: [&str; 5] = [
    concat!("registry.npm", "js.org"),
    concat!("registry.yarn", "pkg.com"),
    concat!("files.python", "hosted.org"),
    concat!("pypi", ".org/simple"),
    concat!("index.crates", ".io"),
];

/// Settings that would name a download address: end of the path, text, advice.
const ADDRESSES: [(&str, &str, &str); 7] = [
    ("package-lock.json", "\"resolved\"", "`omit-lockfile-registry-resolved=true` leaves it out"),
    (".npmrc", "registry=", "leave the registry to the user's own `.npmrc`"),
    (".npmrc", "registry =", "leave the registry to the user's own `.npmrc`"),
    ("requirements.txt", "://", "pin with `==` alone"),
    ("requirements.txt", "--index-url", "leave the index to the user's own pip settings"),
    (".cargo/config.toml", "[source", "leave sources to the user's own cargo settings"),
    (".cargo/config.toml", "[registries", "leave registries to the user's own cargo settings"),
];

const CRATES_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn findings(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        found
            .extend(faults(path, line).map(|advice| Finding::new(path, number, "machine", advice)));
    }
    found
}

fn faults(path: &str, line: &str) -> impl Iterator<Item = String> {
    let folders = FOLDERS.into_iter().filter(|folder| names_folder(line, folder));
    let folders = folders.map(|folder| format!("`{folder}` is a folder of one machine; remove it"));
    let hosts = HOSTS.into_iter().filter(|host| line.contains(host));
    let hosts = hosts.map(|host| format!("`{host}` is a download address; remove it"));
    let of_kind = ADDRESSES.into_iter().filter(|(end, _, _)| path.ends_with(end));
    let addresses = of_kind.filter(|(_, word, _)| line.contains(word));
    let addresses = addresses.map(|(_, _, advice)| advice.to_owned());
    let is_mirror = path.ends_with("Cargo.lock")
        && line.contains("\"registry+")
        && !line.contains(CRATES_INDEX);
    let mirror = is_mirror.then(|| "lock against the public index, not a mirror".to_owned());
    folders.chain(hosts).chain(addresses).chain(mirror)
}

/// Whether the line has a path that starts with the folder.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|character| {
            character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '}' | '*')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, line: &str, expected: &[&str]) {
        assert_eq!(faults(path, line).collect::<Vec<_>>(), expected, "{line}");
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        let [work, home] = FOLDERS;
        let advice = format!("`{work}` is a folder of one machine; remove it");
        check("README.md", &format!("see {work}main"), &[&advice]);
        check("a.rs", &format!("\"{work}\""), &[&advice]);
        check("a.rs", &format!("/home/me{work}x"), &[]);
        check("a.rs", "/workspace/ and /works/", &[]);
        let advice = format!("`{home}` is a folder of one machine; remove it");
        check("a.toml", &format!("path = \"{home}.cargo\""), &[&advice]);
    }

    #[test]
    fn download_addresses_are_found() {
        let [npm, ..] = HOSTS;
        let advice = format!("`{npm}` is a download address; remove it");
        check("docs/a.md", &format!("https://{npm}/x"), &[&advice]);
        let advice = "`omit-lockfile-registry-resolved=true` leaves it out";
        check("tests/package-lock.json", "  \"resolved\": \"x\",", &[advice]);
        check("tests/package.json", "  \"resolved\": \"x\",", &[]);
        check("tests/.npmrc", "omit-lockfile-registry-resolved=true", &[]);
        check("a/.npmrc", "registry=x", &["leave the registry to the user's own `.npmrc`"]);
        check("a/requirements.txt", "mcp==2.3.0", &[]);
        check("a/requirements.txt", "mcp @ https://x/y", &["pin with `==` alone"]);
        let advice = "leave sources to the user's own cargo settings";
        check(".cargo/config.toml", "[source.mirror]", &[advice]);
    }

    #[test]
    fn crates_are_locked_against_the_public_index() {
        check("Cargo.lock", &format!("source = \"{CRATES_INDEX}\""), &[]);
        let advice = "lock against the public index, not a mirror";
        check("Cargo.lock", "source = \"registry+https://mirror.example/index\"", &[advice]);
    }
}
