//! What Toolrack takes from the operating system: private files, the wall clock, the process table and the root
//! certificates.
//!
//! | module | contents |
//! |---|---|
//! | `private_file` | files and directories that only their owner can read; atomic replacement; bounded reads |
//! | `directory` | [`Directory`]: locks, and replacement of a file only if no other program has changed it |
//! | `path_permissions` | [`check_paths`]: whether other users can change a trusted path |
//! | `wall_clock` | Unix time |
//! | `process_table` | [`ProcessTable`]: resident memory of process trees |
//! | `tcp_listeners` | the user whose program listens on a TCP port |
//! | `root_certificates` | root certificates for TLS |
//!
//! **Invariant:** a file appears under its name only when all of its content is on disk.
//! `killed_save_leaves_the_old_or_the_new_file` of toolrack-service, `replace_is_atomic_and_read_is_limited`.
//!
//! **Invariant:** a file or directory that this crate creates is private to its owner from the first moment on.
//! `files_and_directories_are_private`.

#![warn(missing_docs)]

mod directory;
mod path_permissions;
mod private_file;
mod process_table;
mod root_certificates;
mod tcp_listeners;
mod wall_clock;

pub use directory::{Directory, FileLock, FileMode, FileSnapshot, ReplaceOutcome, Replacement};
pub use path_permissions::{Exposure, InsecurePath, OwnIds, PathMode, PathUse, check_paths, judge};
pub use private_file::{
    create_private_dir, ensure_private_dir, ensure_regular, make_private, private_options,
    read_at_most, read_file_at_most, read_open_file, read_pipe_at_most, remove, replace,
};
pub use process_table::{Process, ProcessTable};
pub use root_certificates::{certificates_from_pem, tls_client_config};
pub use tcp_listeners::tcp_listener_user;
pub use wall_clock::unix_time_ms;
