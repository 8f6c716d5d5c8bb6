//! Demo server: a small, correct MCP server of both eras over stdio, for first steps and for tests.
//!
//! It shares no code with the product that talks to it, nor with the scripted servers of `toolrack-testkit`.
//!
//! | module | what it holds |
//! |---|---|
//! | `server` | [`serve`]: handshake, requests and slow calls, in all five revisions |
//! | `content` | tools, resource and prompt |
//! | `protocol` | JSON-RPC messages, errors, protocol revisions |
//!
//! Invariants:
//!
//! - A slow call never delays a fast one.
//! - A cancelled call is never answered.
//! - The crate depends on no other crate of the workspace.
//!
//! Start with `server.rs`.

mod content;
mod protocol;
mod server;

pub use server::serve;
