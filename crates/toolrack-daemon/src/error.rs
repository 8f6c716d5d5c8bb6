//! Why a daemon cannot be started.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use toolrack_service::ServiceError;

/// Why a daemon cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Another one runs for this home.
    #[error("a daemon runs already for this home{}", by(*.pid))]
    Running {
        /// Which process it is, if it has said so.
        pid: Option<u32>,
        /// Where it can be reached.
        socket: PathBuf,
    },
    /// The config or something else of the home cannot be used.
    #[error("the servers of this home cannot be managed")]
    Service(#[source] ServiceError),
    /// A file or socket cannot be used.
    #[error("`{}` cannot be {done}", .path.display())]
    File {
        /// What was to be done with it.
        done: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("{addr} cannot be listened on")]
    Address {
        /// Which.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The address is not of this machine alone.
    #[error("{0} could be reached from other machines")]
    NotLoopback(SocketAddr),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    NoRandomness,
}

impl DaemonError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Running { .. } => Some(
                "use the one that runs, or stop it first with `toolrack daemon stop`".to_owned(),
            ),
            Self::Service(error) => error.hint().map(str::to_owned),
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                Some("set `TOOLRACK_HOME` to a folder with a shorter path".to_owned())
            }
            Self::Address { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some(
                    "another program listens there; choose another port with `toolrack daemon start --listen \
                     127.0.0.1:0`, where 0 is any, or with `TOOLRACK_LISTEN`"
                        .to_owned(),
                )
            }
            Self::NotLoopback(_) => Some("listen on `127.0.0.1` or `[::1]`".to_owned()),
            Self::File { .. } | Self::Address { .. } | Self::NoRandomness => None,
        }
    }
}

fn by(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_is_said() {
        let error = |pid| DaemonError::Running { pid, socket: PathBuf::new() };
        assert_eq!(error(Some(7)).to_string(), "a daemon runs already for this home (process 7)");
        assert_eq!(error(None).to_string(), "a daemon runs already for this home");
        assert!(error(None).hint().is_some());
    }
}
