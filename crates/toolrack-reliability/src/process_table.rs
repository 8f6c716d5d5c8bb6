//! Who is there: processes, their parents and their states, read from `/proc`.

use std::fs;
use std::time::Duration;

/// In which `/proc` counts the time on a processor: a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// All processes at one moment.
#[derive(Debug, Default)]
pub(crate) struct Census(Vec<Resident>);

/// One process. An id and a start time together name it for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) pid: u32,
    parent: u32,
    started: u64,
    is_zombie: bool,
    /// Its own time on a processor, and that of its children that have ended.
    n_ticks: u32,
}

impl Census {
    pub(crate) fn take() -> Self {
        let Ok(entries) = fs::read_dir("/proc") else { return Self::default() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(look_at).collect())
    }

    pub(crate) fn children(&self, parent: u32) -> Vec<Resident> {
        self.0.iter().filter(|value| value.parent == parent).copied().collect()
    }

    /// Children, their children, and so on.
    pub(crate) fn descendants(&self, ancestor: u32) -> Vec<Resident> {
        let mut found = self.children(ancestor);
        let mut seen = 0;
        while let Some(next) = found.get(seen).copied() {
            found.extend(self.children(next.pid));
            seen += 1;
        }
        found
    }

    /// How long a process and everything below it were on a processor. Between two censuses nothing gets lost: the
    /// time of whoever ends goes to its parent.
    pub(crate) fn time_below(&self, ancestor: u32) -> Duration {
        let own = self.0.iter().filter(|value| value.pid == ancestor).copied();
        let n_ticks: u32 = own.chain(self.descendants(ancestor)).map(|own| own.n_ticks).sum();
        TICK * n_ticks
    }

    pub(crate) fn zombies(&self, ancestor: u32) -> Vec<Resident> {
        let mut found = self.descendants(ancestor);
        found.retain(|found| found.is_zombie);
        found
    }
}

impl Resident {
    /// Whether it still runs. A zombie does not.
    pub(crate) fn lives(&self) -> bool {
        look_at(self.pid).is_some_and(|now| now.started == self.started && !now.is_zombie)
    }

    /// Whether there is any trace of it, be it a zombie.
    pub(crate) fn is_listed(&self) -> bool {
        look_at(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Whether it is a guardian, by the word that makes it one.
    pub(crate) fn is_guardian(&self) -> bool {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"__guard".as_slice())
    }
}

/// How busy the machine was over the last minute: how many processes wanted to run.
pub(crate) fn load() -> Option<f64> {
    parse_load(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn look_at(pid: u32) -> Option<Resident> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a program may hold anything, so the fields count from its last parenthesis.
fn parse_stat(pid: u32, stat: &str) -> Option<Resident> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // User and system time, its own and that of ended children.
    let times = fields.by_ref().skip(9).take(4).map_while(|fields| fields.parse::<u32>().ok());
    let n_ticks = times.sum();
    let started = fields.nth(4)?.parse().ok()?;
    Some(Resident { pid, parent, started, is_zombie, n_ticks })
}

fn parse_load(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_survive_odd_program_names() {
        let stat = "77 (a) b) (c) Z 12 77 77 0 -1 0 0 0 0 0 1 2 30 4 20 0 1 0 4242 1 1";
        let zombie = Resident { pid: 77, parent: 12, started: 4242, is_zombie: true, n_ticks: 37 };
        assert_eq!(parse_stat(77, stat), Some(zombie));
        assert_eq!(parse_stat(77, "77 (sh) S 1"), None);
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let resident = |pid, parent, is_zombie| {
            let n_ticks = pid;
            Resident { pid, parent, started: 1, is_zombie, n_ticks }
        };
        let census = Census(vec![
            resident(40, 30, true),
            resident(20, 10, false),
            resident(30, 20, false),
            resident(21, 10, true),
            resident(99, 1, false),
        ]);
        let pids = |found: Vec<Resident>| found.iter().map(|found| found.pid).collect::<Vec<u32>>();
        assert_eq!(pids(census.children(10)), [20, 21]);
        assert_eq!(pids(census.descendants(10)), [20, 21, 30, 40]);
        assert_eq!(pids(census.zombies(10)), [21, 40]);
        assert_eq!(pids(census.descendants(40)), Vec::<u32>::new());
        assert_eq!(census.time_below(20), TICK * 90);
        assert_eq!(census.time_below(7), Duration::ZERO);
    }

    #[test]
    fn a_process_finds_itself_alive_and_no_guardian() {
        let own = look_at(std::process::id()).unwrap();
        let stranger = Resident { started: own.started + 1, ..own };
        let seen = [own.lives(), own.is_listed(), stranger.lives(), stranger.is_listed()];
        assert_eq!((seen, own.is_guardian()), ([true, true, false, false], false));
    }

    #[test]
    fn load_is_the_first_number() {
        assert_eq!(parse_load("3.93 2.72 3.05 1/92 4711\n"), Some(3.93));
        assert_eq!(parse_load(""), None);
    }
}
