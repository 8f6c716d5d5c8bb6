//! The log of a daemon in the background: a file that does not grow for ever.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use tracing::Level;

use crate::daemon_process::open_log;

/// A longer file is put aside, in the place of the one before.
const LARGEST_BYTES: u64 = 2 << 20;

/// A file that begins anew when it is long.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    n_bytes: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = open_log(&path)?;
        let n_bytes = file.metadata()?.len();
        Ok(Self { path, file, n_bytes })
    }

    fn turn(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
        self.file = open_log(&self.path)?;
        self.n_bytes = 0;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.n_bytes >= LARGEST_BYTES {
            self.turn()?;
        }
        let n_bytes = self.file.write(bytes)?;
        self.n_bytes = self.n_bytes.saturating_add(n_bytes as u64);
        Ok(n_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes what libraries say to a file, or to the standard error if there is none.
pub(crate) fn install(path: Option<PathBuf>) -> io::Result<()> {
    let format = tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false);
    match path {
        Some(path) => format.with_writer(Mutex::new(LogFile::open(path)?)).init(),
        None => format.with_writer(io::stderr).init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let mut log = LogFile::open(path.clone()).unwrap();
        log.write_all(&vec![b'x'; 2 << 20]).unwrap();
        log.write_all(b"new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::metadata(dir.path().join("daemon.log.old")).unwrap().len(), 2 << 20);
    }
}
