//! A line to a server over HTTP: stateless 2026-07-28, stateful 2025, two-endpoint SSE 2024.
//!
//! [`HttpLine`] is one line in three shapes. Which one it takes follows from what
//! [`Line::speak`](toolrack_transport::Line::speak) says and from how the server answers the first greeting.
//!
//! **Invariant:** one failing request never ends the line, nothing is sent to another origin, and whatever
//! the server does, what is tried again is tried at the pace of [`Backoff`](toolrack_transport::Backoff).

#![warn(missing_docs)]

mod address;
mod beside;
mod content;
mod courier;
mod definition;
mod dial;
mod dispatch;
mod double;
mod draft;
mod event;
mod exchange;
mod follow;
mod gate;
mod greeting;
mod gzip;
mod header;
mod http1;
mod lane;
mod line;
mod listener;
mod pool;
mod proxy;
mod reply;
mod session;
mod shared;
mod socket;
mod staff;
mod tls;
mod verdict;
mod wire;

pub use definition::{HttpOptions, HttpServerDef};
pub use line::HttpLine;
pub use line::HttpLine as HttpTransport;
pub use proxy::ProxySettings;
pub use socket::{SocketAnswer, SocketClient};
