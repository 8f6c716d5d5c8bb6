//! Pages in files of their owner alone, which lead a browser to the dashboard with the code that opens it.
//!
//! Every user of a machine can read the command lines of all others, so a code has no place in that of a browser. The
//! browser is given the path of such a file instead.
//!
//! **Invariant:** a file goes with its code: when that is used, when it is too old, and when the daemon ends.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

const START: &str = "page-";
const END: &str = ".html";

/// A file with such a page. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Doorway(PathBuf);

impl Doorway {
    /// Writes a page that leads to an address of ours, in a folder that is closed to others.
    pub(crate) fn open(dir: &Path, url: &str) -> io::Result<Self> {
        let path = dir.join(format!("{START}{}{END}", Uuid::new_v4().simple()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let doorway = Self(path);
        file.write_all(page(url).as_bytes())?;
        Ok(doorway)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes what a killed daemon left.
pub(crate) fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|it| it.starts_with(START) && it.ends_with(END)) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, path = %path.display(), "is left behind"),
    }
}

/// The address is ours: a host, a port and hexadecimal digits, which mean nothing in HTML and scripts.
fn page(url: &str) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Toolrack</title>\n<meta http-equiv=\"refresh\" content=\"0;url={url}\">\n\
         <script>location.replace(\"{url}\")</script>\n<p><a href=\"{url}\">Open the dashboard</a></p>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_page_is_private_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let url = "http://127.0.0.1:1/#code=ab";
        let doorway = Doorway::open(dir.path(), url).unwrap();
        let path = doorway.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap().matches(url).count(), 3);
        drop(doorway);
        assert!(!path.exists());
        let _left = std::mem::ManuallyDrop::new(Doorway::open(dir.path(), url).unwrap());
        sweep(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
