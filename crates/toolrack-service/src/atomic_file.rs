//! Private directories, file locks and atomic replacement of files.

mod dir;
mod io_error;
mod lock;
mod open_watch;
mod replace;

pub(crate) use dir::{Folder, close_to_others, make_private, read_all};
pub(crate) use io_error::trouble;
pub(crate) use replace::{Published, Readers, Replacement};
