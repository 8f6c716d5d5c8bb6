//! The folder of one installed package, shared by all processes of a user.
//!
//! Each attempt to install it has a folder of its own within, and the stamp names the program in the one that
//! came to its end.
//!
//! **Invariant:** the stamp is written last and removed first, so what it names is complete; and only whoever
//! holds the lock begins an attempt.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use toolrack_manager::{Failure, FailureKind, Installation};

use crate::atomic_file::make_private;

/// Names the program of a package that is complete.
const STAMP: &str = ".toolrack-program";

/// How often a lock that somebody else holds is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The folder of one package.
pub(super) struct Place {
    dir: PathBuf,
}

/// Held while a package is installed. Let go when it is dropped, also by a crash.
pub(super) struct Lock(#[expect(dead_code, reason = "the lock goes with its file")] File);

impl Place {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The program of the package, if it is completely there.
    pub(super) fn program(&self) -> Option<PathBuf> {
        let program = PathBuf::from(fs::read_to_string(self.dir.join(STAMP)).ok()?);
        program.is_file().then_some(program)
    }

    /// Waits for the lock. Other processes, and other servers with the same package, wait for theirs.
    pub(super) async fn lock(&self, installation: &Installation) -> Result<Lock, Failure> {
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let open = || {
            make_private(parent)?;
            File::create(self.dir.with_added_extension("lock"))
        };
        let file = open().map_err(|error| self.unusable(&error))?;
        let mut is_told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.unusable(&error)),
            }
            if !std::mem::replace(&mut is_told, true) {
                installation.say("the package is being installed by somebody else; waiting");
            }
            tokio::select! {
                () = installation.stop().cancelled() => {
                    return Err(Failure::new(FailureKind::Stopped, "it was stopped"));
                }
                () = sleep(TRY_AGAIN) => {}
            }
        }
    }

    /// Removes what earlier attempts have left. The installer of a killed process may still be ending and hold on
    /// to its folder; then that is left to whoever comes next.
    pub(super) async fn clear(&self) {
        let dir = self.dir.clone();
        let cleared = tokio::task::spawn_blocking(move || {
            fs::remove_file(dir.join(STAMP)).or_else(ignore_missing)?;
            let entries = fs::read_dir(&dir)?.flatten().map(|it| it.path());
            for attempt in entries.filter(|it| it.is_dir()) {
                fs::remove_dir_all(attempt).or_else(ignore_missing)?;
            }
            Ok::<(), io::Error>(())
        });
        if let Ok(Err(error)) = cleared.await {
            tracing::debug!(dir = %self.dir.display(), %error, "an earlier attempt stays for now");
        }
    }

    /// Makes the folder of an attempt.
    pub(super) fn make(&self, attempt: &Path) -> Result<(), Failure> {
        make_private(attempt).map_err(|error| self.unusable(&error))
    }

    /// Says that the package is complete.
    pub(super) fn finish(&self, program: &Path) -> Result<(), Failure> {
        let draft = self.dir.join(format!("{STAMP}.new"));
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(program.as_os_str().as_encoded_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, self.dir.join(STAMP))
        };
        write().map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        let reason = format!("the folder `{}` cannot be used: {error}", self.dir.display());
        Failure::new(FailureKind::InstallFailed, reason)
            .hinting("check who may write there, and how much room is left")
    }
}

/// What is not there need not be removed.
fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
