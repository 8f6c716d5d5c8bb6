//! What the program can do, one file per command. A command knows no clap: settings in, speech through
//! the printer, a failure or nothing out.

pub(crate) mod demo;
pub(crate) mod demo_server;
