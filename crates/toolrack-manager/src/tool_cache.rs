//! Tools and verdicts remembered between runs, one file per way to reach a server.
//!
//! A file is named by the fingerprint of its config, so a changed config never finds the tools of another
//! server.
//!
//! **Invariant:** a file that is missing, too large or broken is as good as none. Nothing depends on it.
//! **Invariant:** files and folder are for their owner alone, and hold no secret that the mask knows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use toolrack_client::{Listing, Verdict};
use toolrack_config::{McpServerConfig, fingerprint};
use toolrack_mcp::{Era, Tool};
use toolrack_transport::Mask;

use crate::atomic_file as store;

/// What is read and written at most. Servers with more tools are asked each time.
const FILE_LIMIT_BYTES: u64 = 16 << 20;
/// So many servers are remembered; beyond that the oldest go.
const MOST_FILES: usize = 512;
/// A server of the legacy era may learn more, so it is asked again after a while.
const LEGACY_HOLDS: Duration = Duration::from_hours(7 * 24);
const FORMAT: u32 = 1;

/// A directory of remembered tools.
#[derive(Debug, Clone)]
pub(crate) struct Catalog {
    dir: PathBuf,
    mask: Mask,
}

/// What is remembered of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) listing: Option<Arc<Listing<Tool>>>,
    pub(crate) verdict: Option<Verdict>,
}

#[derive(Deserialize)]
struct Page {
    format: u32,
    verdict: Option<String>,
    saved_at: u64,
    tools: Vec<Tool>,
}

#[derive(Serialize)]
struct PageRef<'a> {
    format: u32,
    /// For people who look into the file.
    server: &'a str,
    verdict: Option<String>,
    saved_at: u64,
    tools: &'a [Tool],
}

impl Catalog {
    pub(crate) fn new(dir: PathBuf, mask: Mask) -> Self {
        Self { dir, mask }
    }

    /// What is remembered of the server of `config`. Reads a file.
    pub(crate) fn load(&self, config: &McpServerConfig) -> Memory {
        let path = self.path(config);
        // They may be from a time when others could read them.
        for it in [&self.dir, &path] {
            store::close_to_others(it);
        }
        let text = match store::read(&path, FILE_LIMIT_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Memory::default(),
            Err(error) => return forget(&path, error),
        };
        match serde_json::from_slice::<Page>(&text) {
            Ok(page) if page.format == FORMAT => recall(page, seconds_now()),
            Ok(_other_format) => Memory::default(),
            Err(error) => forget(&path, error),
        }
    }

    /// Remembers a server. Writes a file.
    pub(crate) fn save(&self, config: &McpServerConfig, memory: &Memory) -> io::Result<()> {
        let Some(listing) = &memory.listing else { return Ok(()) };
        let page = PageRef {
            format: FORMAT,
            server: &config.name,
            verdict: memory.verdict.map(|verdict| verdict.to_string()),
            saved_at: seconds_now(),
            tools: &listing.items,
        };
        let text = self.mask.clean_json(Bytes::from(serde_json::to_vec(&page)?));
        if !u64::try_from(text.len()).is_ok_and(|length| length <= FILE_LIMIT_BYTES) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        store::replace(&self.path(config), &text)?;
        self.prune()
    }

    fn path(&self, config: &McpServerConfig) -> PathBuf {
        self.dir.join(format!("{}.json", fingerprint(config)))
    }

    fn prune(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|it| it == "json") {
                files.push((entry.metadata()?.modified()?, path));
            }
        }
        files.sort_unstable();
        let surplus = files.len().saturating_sub(MOST_FILES);
        files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn recall(page: Page, now: u64) -> Memory {
    let age = Duration::from_secs(now.saturating_sub(page.saved_at));
    let verdict = page.verdict.as_deref().and_then(Verdict::parse);
    let verdict = verdict.filter(|it| it.era() == Era::Modern || age < LEGACY_HOLDS);
    let listing = Listing { items: page.tools, ..Listing::default() };
    Memory { listing: Some(Arc::new(listing)), verdict }
}

fn forget(path: &Path, error: impl std::fmt::Display) -> Memory {
    tracing::warn!(path = %path.display(), %error, "remembered tools cannot be read and are ignored");
    Memory::default()
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn tool(name: &str) -> Tool {
        let json = serde_json::json!({"name": name, "inputSchema": {"type": "object", "x": 1.0}});
        serde_json::from_value(json).unwrap()
    }

    fn names(memory: &Memory) -> Option<Vec<&str>> {
        let listing = memory.listing.as_ref()?;
        Some(listing.items.iter().map(|tool| tool.name.as_str()).collect())
    }

    #[test]
    fn tools_and_verdict_come_back_for_the_same_config_only() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::new(dir.path().join("catalog"), Mask::default());
        let config = McpServerConfig::stdio("fs", "server", &["a"]);
        assert_eq!(names(&catalog.load(&config)), None);
        let listing = Listing { items: vec![tool("read"), tool("write")], ..Listing::default() };
        let memory =
            Memory { listing: Some(Arc::new(listing)), verdict: Verdict::parse("2025-11-25") };
        catalog.save(&config, &memory).unwrap();
        let loaded = catalog.load(&config);
        assert_eq!((names(&loaded), loaded.verdict), (names(&memory), memory.verdict));
        let other = McpServerConfig::stdio("fs", "server", &["b"]);
        assert_eq!(names(&catalog.load(&other)), None);
        let renamed = McpServerConfig { name: "files".to_owned(), ..config };
        assert_eq!(names(&catalog.load(&renamed)), names(&memory));
    }

    #[test]
    fn a_secret_that_a_server_tells_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mask = Mask::default();
        let catalog = Catalog::new(dir.path().join("catalog"), mask.clone());
        let config = McpServerConfig::stdio("fs", "server", &[]);
        let told = Tool { description: Some("it is s3cr3t".to_owned()), ..tool("read") };
        let listing = Listing { items: vec![told], ..Listing::default() };
        let memory = Memory { listing: Some(Arc::new(listing)), verdict: None };
        mask.learn("token", "s3cr3t");
        catalog.save(&config, &memory).unwrap();
        let text = store::read_at_most(&catalog.path(&config), FILE_LIMIT_BYTES).unwrap();
        assert!(text.contains("it is [secret token]") && !text.contains("s3cr3t"), "{text}");
    }

    #[test]
    fn remembered_tools_are_private_also_those_of_old() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::new(dir.path().join("catalog"), Mask::default());
        let config = McpServerConfig::stdio("fs", "server", &[]);
        let memory = Memory { listing: Some(Arc::default()), verdict: None };
        catalog.save(&config, &memory).unwrap();
        let paths = [catalog.dir.clone(), catalog.path(&config)];
        for path in &paths {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        assert_eq!(names(&catalog.load(&config)), Some(Vec::new()));
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o077;
        assert_eq!(paths.each_ref().map(mode), [0, 0]);
    }

    #[test]
    fn broken_and_foreign_files_are_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::new(dir.path().to_owned(), Mask::default());
        let config = McpServerConfig::stdio("fs", "server", &[]);
        let path = catalog.path(&config);
        for text in ["", "{", "[]", r#"{"format":2,"saved_at":0,"tools":[]}"#, "\u{0}\u{0}"] {
            store::replace(&path, text.as_bytes()).unwrap();
            assert_eq!(names(&catalog.load(&config)), None, "{text}");
        }
        let sparse = File::create(&path);
        sparse.unwrap().set_len(FILE_LIMIT_BYTES + 1).unwrap();
        assert_eq!(names(&catalog.load(&config)), None);
    }

    use std::fs::File;

    #[track_caller]
    fn check(verdict: &str, age: Duration, expected: Option<&str>) {
        let page = Page {
            format: FORMAT,
            verdict: Some(verdict.to_owned()),
            saved_at: 1_000_000,
            tools: Vec::new(),
        };
        let recalled = recall(page, 1_000_000 + age.as_secs()).verdict;
        assert_eq!(recalled.map(|it| it.to_string()).as_deref(), expected);
    }

    #[test]
    fn a_legacy_verdict_is_forgotten_after_a_week() {
        let day = Duration::from_hours(24);
        check("2025-11-25", day * 6, Some("2025-11-25"));
        check("2025-11-25", day * 7, None);
        check("2026-07-28", day * 400, Some("2026-07-28"));
        check("nonsense", day, None);
    }

    #[test]
    fn the_oldest_files_go_when_there_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::new(dir.path().to_owned(), Mask::default());
        for number in 0..MOST_FILES + 5 {
            File::create(dir.path().join(format!("{number}.json"))).unwrap();
        }
        catalog.prune().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MOST_FILES);
    }
}
