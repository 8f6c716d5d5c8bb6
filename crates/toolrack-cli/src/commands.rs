//! What the program can do, one file per command. A command knows no clap: settings in, speech through
//! the printer, a failure or nothing out.

pub(crate) mod call;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod demo;
pub(crate) mod demo_server;
pub(crate) mod prompt;
pub(crate) mod prompts;
pub(crate) mod read;
pub(crate) mod resources;
pub(crate) mod search;
pub(crate) mod tools;
