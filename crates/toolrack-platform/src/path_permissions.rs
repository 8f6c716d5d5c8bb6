//! Path permissions: whether users other than this one and root can change a file or directory that Toolrack trusts.
//!
//! A config file names programs to run, so a user who can write it, or exchange one of its directories, runs programs
//! as this user. [`judge`] decides from owner and mode alone; [`check_paths`] reads them for a path, its links and all
//! its parent directories.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};

/// What a path is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// A file whose content is trusted, such as the config file. Root may own it.
    File,
    /// A directory whose entries are trusted: no other user may create one.
    Directory,
    /// A directory above: no other user may rename or remove the entry that leads to ours.
    Parent,
}

/// Owner and mode of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMode {
    /// Permission bits, with the sticky bit.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Whether it is a symbolic link.
    pub is_link: bool,
}

/// The user for whom a path is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnIds {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// The user id that stands for all users outside this user namespace, root among them.
    pub unmapped_uid: Option<u32>,
}

/// How another user could change a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Another user owns it.
    ForeignOwner,
    /// All users can write to it.
    WorldWritable,
    /// A group other than the private group of this user can write to it.
    GroupWritable,
}

/// A path that another user could change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsecurePath {
    /// The path.
    pub path: PathBuf,
    /// Its owner and mode.
    pub found: PathMode,
    /// How it could be changed.
    pub exposure: Exposure,
}

/// Decides whether users other than this one and root could change a path.
///
/// A directory that all users can write to is fine above ours if it is sticky, as `/tmp` is: entries of other users
/// cannot be renamed there. Access of a private group is fine, because most systems give every user one, with the id of
/// the user, and a umask of 002. A primary group with another id, such as `users` or `staff`, may have more members.
pub fn judge(found: PathMode, used: PathUse, own: OwnIds) -> Option<Exposure> {
    let is_parent = used == PathUse::Parent;
    // Inside a user namespace, the directories of the system seem to belong to an unknown user.
    let is_unmapped = is_parent && own.unmapped_uid == Some(found.uid);
    if found.uid != own.uid && found.uid != 0 && !is_unmapped {
        return Some(Exposure::ForeignOwner);
    }
    // The mode of a link is not used.
    if found.is_link || (is_parent && found.mode & 0o1000 != 0) {
        return None;
    }
    if found.mode & 0o002 != 0 {
        return Some(Exposure::WorldWritable);
    }
    let is_private_group = own.gid == own.uid && found.gid == own.gid;
    let is_trusted_group = is_private_group || found.gid == 0;
    (found.mode & 0o020 != 0 && !is_trusted_group).then_some(Exposure::GroupWritable)
}

/// Finds everything that would let another user change one of these paths: the path itself, the links on the way to
/// it, and the directories above all of them. A path that does not exist is judged by the directories that do; one
/// that this user cannot reach is left to its reader.
pub fn check_paths(paths: &[(&Path, PathUse)]) -> Vec<InsecurePath> {
    let mut walk = Walk { own: OwnIds::current(), seen: BTreeSet::new(), insecure: Vec::new() };
    for (path, used) in paths {
        let path = std::path::absolute(path).unwrap_or_else(|_empty| path.to_path_buf());
        walk.visit(&path, *used, MAX_LINKS);
    }
    walk.insecure
}

/// As many symbolic links as the kernel follows.
const MAX_LINKS: usize = 40;

/// One walk over a path. Directories above several links are visited once.
struct Walk {
    own: OwnIds,
    seen: BTreeSet<PathBuf>,
    insecure: Vec<InsecurePath>,
}

impl Walk {
    fn visit(&mut self, path: &Path, used: PathUse, n_links: usize) {
        // From the root down, so that the widest exposure is named first.
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for parent in above {
            self.visit_one(parent, PathUse::Parent, n_links);
        }
        self.visit_one(path, used, n_links);
    }

    fn visit_one(&mut self, path: &Path, used: PathUse, n_links: usize) {
        if used == PathUse::Parent && !self.seen.insert(path.to_owned()) {
            return;
        }
        let Ok(metadata) = fs::symlink_metadata(path) else { return };
        // What is neither, such as a device, is for the reader to report: its mode must not be changed.
        let is_usable = metadata.is_dir() || (metadata.is_file() && used != PathUse::Parent);
        if !is_usable && !metadata.is_symlink() {
            return;
        }
        let found = PathMode::new(&metadata);
        if let Some(exposure) = judge(found, used, self.own) {
            let insecure = InsecurePath { path: path.to_owned(), found, exposure };
            // A data directory is also above its own files.
            if !self.insecure.contains(&insecure) {
                self.insecure.push(insecure);
            }
            return;
        }
        // A loop of links is for the reader of the file to report.
        let (Some(n_links), Ok(target)) = (n_links.checked_sub(1), fs::read_link(path)) else {
            return;
        };
        self.visit(&path.parent().unwrap_or(path).join(target), used, n_links);
    }
}

impl PathMode {
    fn new(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            is_link: metadata.is_symlink(),
        }
    }
}

impl OwnIds {
    fn current() -> Self {
        Self {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            unmapped_uid: fs::read_to_string("/proc/self/uid_map")
                .ok()
                .filter(|map| !maps_all_users(map))
                .map(|_| OVERFLOW_UID),
        }
    }
}

/// The kernel's default for users without an id in this user namespace.
const OVERFLOW_UID: u32 = 65534;

/// Whether this is the user namespace of the system: `0 0 4294967295`.
fn maps_all_users(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

impl Exposure {
    /// Whether the path must not be used. A group may be shared on purpose and is only worth a warning.
    pub fn is_refused(self) -> bool {
        self != Self::GroupWritable
    }
}

impl InsecurePath {
    /// The command that repairs it, if the path is as it should be otherwise.
    pub fn repair_command(&self) -> String {
        let path = quote(&self.path);
        match self.exposure {
            Exposure::ForeignOwner => format!("sudo chown -h \"$(id -un)\" {path}"),
            Exposure::WorldWritable => format!("chmod o-w {path}"),
            Exposure::GroupWritable => format!("chmod g-w {path}"),
        }
    }
}

impl fmt::Display for InsecurePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, PathMode { mode, uid, gid, .. }) = (self.path.display(), self.found);
        match self.exposure {
            Exposure::ForeignOwner => {
                write!(f, "`{path}` belongs to another user (uid {uid}, mode {mode:04o})")
            }
            Exposure::WorldWritable => {
                write!(f, "`{path}` is writable by all users (mode {mode:04o})")
            }
            Exposure::GroupWritable => {
                write!(f, "`{path}` is writable by group {gid} (mode {mode:04o})")
            }
        }
    }
}

/// Quotes a path for a shell where it needs quotes.
fn quote(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./".contains(char);
    if path.chars().all(is_plain) {
        path.into_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    const OWN: OwnIds = OwnIds { uid: 1000, gid: 1000, unmapped_uid: None };

    #[track_caller]
    fn check(mode: u32, (uid, gid): (u32, u32), used: PathUse, expected: Option<Exposure>) {
        let found = PathMode { mode, uid, gid, is_link: false };
        assert_eq!(judge(found, used, OWN), expected, "{mode:o} {uid} {gid} {used:?}");
    }

    #[test]
    fn owner_and_mode_decide() {
        use Exposure::{ForeignOwner, GroupWritable, WorldWritable};
        use PathUse::{Directory, File, Parent};
        let (mine, root, other) = ((1000, 1000), (0, 0), (1001, 1001));
        for used in [File, Directory, Parent] {
            check(0o755, mine, used, None);
            check(0o755, root, used, None);
            check(0o700, other, used, Some(ForeignOwner));
            check(0o777, mine, used, Some(WorldWritable));
            check(0o777, root, used, Some(WorldWritable));
            check(0o702, mine, used, Some(WorldWritable));
            // A private group, that of root, and any other.
            check(0o775, mine, used, None);
            check(0o775, root, used, None);
            check(0o775, (1000, 0), used, None);
            check(0o775, (1000, 50), used, Some(GroupWritable));
            check(0o775, (0, 50), used, Some(GroupWritable));
            // A primary group that other users share.
            let shared = OwnIds { gid: 100, ..OWN };
            let found = PathMode { mode: 0o775, uid: 1000, gid: 100, is_link: false };
            assert_eq!(judge(found, used, shared), Some(GroupWritable));
        }
        // Sticky: entries cannot be renamed by others, but created.
        check(0o1777, root, Parent, None);
        check(0o1777, root, Directory, Some(WorldWritable));
        check(0o1777, other, Parent, Some(ForeignOwner));
        check(0o1770, (1000, 50), Directory, Some(GroupWritable));
        assert!(ForeignOwner.is_refused() && WorldWritable.is_refused());
        assert!(!GroupWritable.is_refused());
    }

    #[test]
    fn links_count_by_their_owner() {
        let link = |uid| PathMode { mode: 0o777, uid, gid: uid, is_link: true };
        assert_eq!(judge(link(1000), PathUse::File, OWN), None);
        assert_eq!(judge(link(0), PathUse::Parent, OWN), None);
        assert_eq!(judge(link(7), PathUse::File, OWN), Some(Exposure::ForeignOwner));
    }

    #[test]
    fn unmapped_owner_is_accepted_only_above() {
        let own = OwnIds { unmapped_uid: Some(OVERFLOW_UID), ..OWN };
        let found = PathMode { mode: 0o755, uid: OVERFLOW_UID, gid: OVERFLOW_UID, is_link: false };
        assert_eq!(judge(found, PathUse::Parent, own), None);
        assert_eq!(judge(found, PathUse::Parent, OWN), Some(Exposure::ForeignOwner));
        assert_eq!(judge(found, PathUse::File, own), Some(Exposure::ForeignOwner));
        assert!(maps_all_users("         0          0 4294967295\n"));
        assert!(!maps_all_users("      1000       1000          1\n"));
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// The paths that are found insecure.
    fn insecure(path: &Path, used: PathUse) -> Vec<PathBuf> {
        check_paths(&[(path, used)]).into_iter().map(|insecure| insecure.path).collect()
    }

    #[test]
    fn file_links_and_parents_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let (open, real) = (dir.path().join("open"), dir.path().join("real"));
        fs::create_dir_all(open.join("below")).unwrap();
        fs::create_dir(&real).unwrap();
        let (link, file) = (real.join("link"), open.join("below/file"));
        symlink("../open/below/file", &link).unwrap();
        assert_eq!(insecure(&link, PathUse::File), [] as [PathBuf; 0], "the target is missing");
        fs::File::create(&file).unwrap();
        assert_eq!(insecure(&link, PathUse::File), [] as [PathBuf; 0]);
        chmod(&file, 0o666);
        assert_eq!(insecure(&link, PathUse::File), [real.join("../open/below/file")]);
        chmod(&file, 0o600);
        chmod(&open, 0o777);
        assert_eq!(insecure(&link, PathUse::File), [real.join("../open")]);
        assert_eq!(insecure(&file, PathUse::File), std::slice::from_ref(&open));
        assert_eq!(
            insecure(&open.join("missing/file"), PathUse::File),
            std::slice::from_ref(&open)
        );
        chmod(&open, 0o1777);
        assert_eq!(insecure(&file, PathUse::File), [] as [PathBuf; 0]);
        assert_eq!(insecure(&open, PathUse::Directory), std::slice::from_ref(&open));
        // A loop ends.
        symlink("loop", real.join("loop")).unwrap();
        assert_eq!(insecure(&real.join("loop"), PathUse::File), [] as [PathBuf; 0]);
        assert_eq!(insecure(&file.join("below"), PathUse::File), [] as [PathBuf; 0]);
        for device in ["/dev/null", "/dev/null/below"] {
            assert_eq!(insecure(Path::new(device), PathUse::File), [] as [PathBuf; 0]);
        }
        if geteuid().is_root() {
            chown(&file, Some(4321), Some(4321)).unwrap();
            assert_eq!(insecure(&file, PathUse::File), std::slice::from_ref(&file));
            chown(&file, Some(0), Some(4321)).unwrap();
            chmod(&file, 0o660);
            let found = check_paths(&[(&file, PathUse::File)]);
            assert_eq!(found[0].exposure, Exposure::GroupWritable);
        }
    }

    #[test]
    fn messages_name_path_mode_and_repair() {
        let found = PathMode { mode: 0o1777, uid: 7, gid: 8, is_link: false };
        let check = |exposure, text: &str, repair: &str| {
            let insecure = InsecurePath { path: "/a b".into(), found, exposure };
            assert_eq!(
                (insecure.to_string().as_str(), insecure.repair_command().as_str()),
                (text, repair)
            );
        };
        check(
            Exposure::ForeignOwner,
            "`/a b` belongs to another user (uid 7, mode 1777)",
            "sudo chown -h \"$(id -un)\" '/a b'",
        );
        check(
            Exposure::WorldWritable,
            "`/a b` is writable by all users (mode 1777)",
            "chmod o-w '/a b'",
        );
        check(
            Exposure::GroupWritable,
            "`/a b` is writable by group 8 (mode 1777)",
            "chmod g-w '/a b'",
        );
    }
}
