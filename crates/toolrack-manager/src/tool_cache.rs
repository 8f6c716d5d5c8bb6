//! Tool cache: tool lists and protocol versions of servers on disk, one file per transport config.
//!
//! With a cached list, a server's tools are offered before it runs. A file is named by the fingerprint of its config,
//! so a changed config never finds the tools of another server.
//!
//! **Invariant:** a file that is missing, too large or broken counts as absent. Nothing depends on the cache.
//! **Invariant:** files and directory are private to their owner, and contain no secret that the redactor knows.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use toolrack_client::List;
use toolrack_config::{McpServerConfig, fingerprint};
use toolrack_mcp::{Era, Revision, Tool};
use toolrack_platform::{make_private, read_file_at_most, replace, unix_time_ms};
use toolrack_transport::Redactor;

/// Maximum size of a file. The tools of a server with a longer list are not cached.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Maximum number of files; the oldest are deleted.
const MAX_FILES: usize = 512;
/// How long the version of a legacy server is used. The server may have been upgraded, so it is probed again.
const LEGACY_VERSION_TTL: Duration = Duration::from_hours(7 * 24);
const FORMAT: u32 = 1;

/// Directory of cached tools.
#[derive(Debug, Clone)]
pub(crate) struct ToolCache {
    pub(crate) dir: PathBuf,
    pub(crate) redactor: Redactor,
}

/// Cached knowledge about one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct CachedTools {
    pub(crate) list: Option<Arc<List<Tool>>>,
    /// Detected protocol version.
    pub(crate) version: Option<Revision>,
}

/// Content of a file.
#[derive(Serialize, Deserialize)]
struct CacheFile<'a> {
    format: u32,
    /// Not read again: for people who open the file.
    #[serde(skip_deserializing)]
    server: &'a str,
    #[serde(rename = "verdict")]
    version: Option<String>,
    saved_at: u64,
    tools: Cow<'a, [Tool]>,
}

impl ToolCache {
    /// Reads the file of a server. Blocks.
    pub(crate) fn load(&self, config: &McpServerConfig) -> CachedTools {
        let path = self.path(config);
        // An earlier version may have created them with wider permissions.
        for path in [&self.dir, &path] {
            make_private(path);
        }
        let parse =
            |text: Vec<u8>| Ok(from_file(serde_json::from_slice(&text)?, unix_time_ms() / 1000));
        match read_file_at_most(&path, MAX_FILE_BYTES).and_then(parse) {
            Ok(cached) => cached,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let path = path.display();
                    tracing::warn!(%path, %error, "ignoring unreadable tool cache file");
                }
                CachedTools::default()
            }
        }
    }

    /// Writes the file of a server. Blocks.
    pub(crate) fn save(&self, config: &McpServerConfig, cached: &CachedTools) -> io::Result<()> {
        let Some(list) = &cached.list else { return Ok(()) };
        let file = CacheFile {
            format: FORMAT,
            server: &config.name,
            version: cached.version.map(|version| version.to_string()),
            saved_at: unix_time_ms() / 1000,
            tools: Cow::Borrowed(&list.items),
        };
        // Again, although the transport redacts: the redactor may have learned a secret since the list arrived.
        let text = self.redactor.redact_json(Bytes::from(serde_json::to_vec(&file)?));
        if !u64::try_from(text.len()).is_ok_and(|length| length <= MAX_FILE_BYTES) {
            // `load` refuses such a file, so it would only take up space.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        replace(&self.path(config), &text)?;
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
            // Temporary files of another process are not touched: it may be about to rename them.
            if path.extension().is_some_and(|extension| extension == "json") {
                files.push((entry.metadata()?.modified()?, path));
            }
        }
        files.sort_unstable();
        let surplus = files.len().saturating_sub(MAX_FILES);
        files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn from_file(file: CacheFile<'_>, now: u64) -> CachedTools {
    if file.format != FORMAT {
        // Written by another version of the program, so not worth a warning.
        return CachedTools::default();
    }
    // Saturates, because the system clock may have been set back.
    let age = Duration::from_secs(now.saturating_sub(file.saved_at));
    let version = file.version.as_deref().and_then(Revision::parse);
    // The probe notices a stale modern version; a stale legacy one would be used forever.
    let version =
        version.filter(|version| version.era() == Era::Modern || age < LEGACY_VERSION_TTL);
    let list = List { items: file.tools.into_owned(), ..List::default() };
    CachedTools { list: Some(Arc::new(list)), version }
}

/// Writer task: writes one file at a time, in the order of requests, until all senders are dropped.
pub(crate) async fn run_writer(
    cache: ToolCache,
    mut writes: mpsc::Receiver<(Arc<McpServerConfig>, CachedTools)>,
) {
    while let Some((config, cached)) = writes.recv().await {
        let (cache, server) = (cache.clone(), config.name.clone());
        // Awaited before the next write, so that an older list never replaces a newer one.
        let saved = tokio::task::spawn_blocking(move || cache.save(&config, &cached)).await;
        if let Err(error) = saved.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            tracing::warn!(server, %error, "cannot write tool cache");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use toolrack_platform::read_at_most;

    use super::*;

    fn tool(name: &str) -> Tool {
        let json = serde_json::json!({"name": name, "inputSchema": {"type": "object", "x": 1.0}});
        serde_json::from_value(json).unwrap()
    }

    fn names(cached: &CachedTools) -> Option<Vec<&str>> {
        let list = cached.list.as_ref()?;
        Some(list.items.iter().map(|tool| tool.name.as_str()).collect())
    }

    #[test]
    fn tools_and_version_are_loaded_for_the_same_config_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ToolCache { dir: dir.path().join("cache"), redactor: Redactor::default() };
        let config = McpServerConfig::stdio("fs", "server", &["a"]);
        assert_eq!(names(&cache.load(&config)), None);
        let list = List { items: vec![tool("read"), tool("write")], ..List::default() };
        let cached =
            CachedTools { list: Some(Arc::new(list)), version: Revision::parse("2025-11-25") };
        cache.save(&config, &cached).unwrap();
        let loaded = cache.load(&config);
        assert_eq!((names(&loaded), loaded.version), (names(&cached), cached.version));
        let other = McpServerConfig::stdio("fs", "server", &["b"]);
        assert_eq!(names(&cache.load(&other)), None);
        let renamed = McpServerConfig { name: "files".to_owned(), ..config };
        assert_eq!(names(&cache.load(&renamed)), names(&cached));
    }

    /// Files of earlier releases must stay readable.
    #[test]
    fn file_keys_are_stable() {
        let file = CacheFile {
            format: FORMAT,
            server: "fs",
            version: Some("2025-11-25".to_owned()),
            saved_at: 7,
            tools: Cow::Borrowed(&[]),
        };
        let expected =
            r#"{"format":1,"server":"fs","verdict":"2025-11-25","saved_at":7,"tools":[]}"#;
        assert_eq!(serde_json::to_string(&file).unwrap(), expected);
        let file: CacheFile<'_> = serde_json::from_str(expected).unwrap();
        assert_eq!(file.version.as_deref(), Some("2025-11-25"));
    }

    #[test]
    fn secrets_are_not_cached() {
        let dir = tempfile::tempdir().unwrap();
        let redactor = Redactor::default();
        let cache = ToolCache { dir: dir.path().join("cache"), redactor: redactor.clone() };
        let config = McpServerConfig::stdio("fs", "server", &[]);
        let leaky = Tool { description: Some("it is s3cr3t".to_owned()), ..tool("read") };
        let list = List { items: vec![leaky], ..List::default() };
        let cached = CachedTools { list: Some(Arc::new(list)), version: None };
        redactor.add_secret("token", "s3cr3t");
        cache.save(&config, &cached).unwrap();
        let text = read_at_most(&cache.path(&config), MAX_FILE_BYTES).unwrap();
        assert!(text.contains("it is [secret token]") && !text.contains("s3cr3t"), "{text}");
    }

    #[test]
    fn existing_files_become_private() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ToolCache { dir: dir.path().join("cache"), redactor: Redactor::default() };
        let config = McpServerConfig::stdio("fs", "server", &[]);
        let cached = CachedTools { list: Some(Arc::default()), version: None };
        cache.save(&config, &cached).unwrap();
        let paths = [cache.dir.clone(), cache.path(&config)];
        for path in &paths {
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        assert_eq!(names(&cache.load(&config)), Some(Vec::new()));
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o077;
        assert_eq!(paths.each_ref().map(mode), [0, 0]);
    }

    #[test]
    fn broken_files_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ToolCache { dir: dir.path().to_owned(), redactor: Redactor::default() };
        let config = McpServerConfig::stdio("fs", "server", &[]);
        let path = cache.path(&config);
        for text in ["", "{", "[]", r#"{"format":2,"saved_at":0,"tools":[]}"#, "\u{0}\u{0}"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(names(&cache.load(&config)), None, "{text}");
        }
        let sparse = File::create(&path);
        sparse.unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        assert_eq!(names(&cache.load(&config)), None);
    }

    #[track_caller]
    fn check_version(version: &str, age: Duration, expected: Option<&str>) {
        let file = CacheFile {
            format: FORMAT,
            server: "fs",
            version: Some(version.to_owned()),
            saved_at: 1_000_000,
            tools: Cow::default(),
        };
        let loaded = from_file(file, 1_000_000 + age.as_secs()).version;
        assert_eq!(loaded.map(|version| version.to_string()).as_deref(), expected);
    }

    #[test]
    fn legacy_version_expires_after_a_week() {
        let day = Duration::from_hours(24);
        check_version("2025-11-25", day * 6, Some("2025-11-25"));
        check_version("2025-11-25", day * 7, None);
        check_version("2026-07-28", day * 400, Some("2026-07-28"));
        check_version("nonsense", day, None);
    }

    #[test]
    fn oldest_files_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ToolCache { dir: dir.path().to_owned(), redactor: Redactor::default() };
        for number in 0..MAX_FILES + 5 {
            File::create(dir.path().join(format!("{number}.json"))).unwrap();
        }
        cache.prune().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MAX_FILES);
    }
}
