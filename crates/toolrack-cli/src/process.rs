//! Processes of servers that this program runs at the moment, and how much memory they take.
//!
//! They are known by the mark that every process of a server carries, so children of children are found too.

use std::fs;

use serde_json::{Value, json};

/// The variable with the mark; its fourth part is the process that owns the server.
const MARK: &str = "TOOLRACK_RUN=";
const OWNER: usize = 3;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) name: String,
    pub(crate) memory_bytes: u64,
}

impl Process {
    pub(crate) fn json(&self) -> Value {
        json!({
            "pid": self.pid,
            "parent": self.parent,
            "name": self.name,
            "memory_bytes": self.memory_bytes,
        })
    }
}

/// The processes of the servers that this program runs now, parents first.
pub(crate) fn ours() -> Vec<Process> {
    let owner = std::process::id().to_string();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<Process> = pids.filter_map(|pid| process(pid, &owner)).collect();
    found.sort_unstable_by_key(|it| it.pid);
    found
}

/// How many processes there are, and how much memory they take together.
pub(crate) fn summary(processes: &[Process]) -> String {
    let pids: Vec<String> = processes.iter().map(|it| it.pid.to_string()).collect();
    let bytes: u64 = processes.iter().map(|it| it.memory_bytes).sum();
    match pids.as_slice() {
        [] => String::new(),
        pids => format!("{} ({:.1} MiB)", pids.join(" "), mebibytes(bytes)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn process(pid: u32, owner: &str) -> Option<Process> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    if !is_owned(&environment, owner) {
        return None;
    }
    let (name, parent) = name_and_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    Some(Process { pid, parent, name, memory_bytes: pages * page_bytes })
}

/// Whether an environment carries a mark of this owner.
fn is_owned(environment: &[u8], owner: &str) -> bool {
    let mut variables = environment.split(|it| *it == 0).filter_map(|it| str::from_utf8(it).ok());
    let mark = variables.find_map(|it| it.strip_prefix(MARK));
    mark.and_then(|it| it.split('.').nth(OWNER)) == Some(owner)
}

/// The name stands in brackets and may hold some itself.
fn name_and_parent(stat: &str) -> Option<(String, u32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_mark() {
        let environment = b"A=1\0TOOLRACK_RUN=1.boot.99.4711.5.1\0B=2\0";
        assert!(is_owned(environment, "4711"));
        assert!(!is_owned(environment, "471"));
        assert!(!is_owned(b"A=1\0", "4711"));
    }

    #[test]
    fn a_strange_name_does_not_move_the_fields() {
        assert_eq!(name_and_parent("77 (a) b) S 12 77"), Some(("a) b".to_owned(), 12)));
        assert_eq!(name_and_parent("nonsense"), None);
    }

    #[test]
    fn processes_are_told_in_few_words() {
        let process = |pid| Process { pid, parent: 1, name: "x".to_owned(), memory_bytes: 3 << 19 };
        assert_eq!(summary(&[]), "");
        assert_eq!(summary(&[process(7), process(8)]), "7 8 (3.0 MiB)");
    }
}
