//! The folder of one installed package, shared by all processes of a user.
//!
//! **Invariant:** the stamp is written last and removed first, so a folder with a stamp is complete; and only
//! whoever holds the lock writes.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use toolrack_manager::{Failure, FailureKind, Installation};

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
            fs::create_dir_all(parent)?;
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

    /// Leaves an empty folder, whatever was there.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let dir = self.dir.clone();
        let cleared = tokio::task::spawn_blocking(move || {
            remove(fs::remove_file(dir.join(STAMP)))?;
            remove(fs::remove_dir_all(&dir))?;
            fs::create_dir_all(&dir)
        });
        let cleared = cleared.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        cleared.map_err(|error| self.unusable(&error))
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
fn remove(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
