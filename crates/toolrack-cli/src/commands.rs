//! What the program can do, one file per command. A command knows no clap: settings in, speech through
//! the printer, a failure or nothing out.

pub(crate) mod add;
pub(crate) mod add_json;
pub(crate) mod call;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod daemon_logs;
pub(crate) mod dashboard;
pub(crate) mod demo;
pub(crate) mod demo_server;
pub(crate) mod disable;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod enable;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod logs;
pub(crate) mod prompt;
pub(crate) mod prompts;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod resources;
pub(crate) mod search;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod systemd_unit;
pub(crate) mod tools;
