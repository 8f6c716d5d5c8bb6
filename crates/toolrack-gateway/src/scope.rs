//! Which servers a client sees, and under which names.

use std::collections::BTreeSet;

/// What one endpoint shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Every server, under public names.
    #[default]
    All,
    /// The servers of an agent, under public names.
    Agent(BTreeSet<String>),
    /// One server, under the names that it gives itself.
    Server(String),
}

/// Whether names are those that servers give, or made so that none is there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Raw,
    Public,
}

impl Scope {
    /// Whether a server is seen.
    pub fn has(&self, server: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Agent(servers) => servers.contains(server),
            Scope::Server(name) => name == server,
        }
    }

    pub(crate) fn naming(&self) -> Naming {
        match self {
            Scope::All | Scope::Agent(_) => Naming::Public,
            Scope::Server(_) => Naming::Raw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_shows_its_servers_only() {
        let check = |scope: &Scope, a: bool, b: bool| {
            assert_eq!((scope.has("a"), scope.has("b")), (a, b), "{scope:?}");
        };
        check(&Scope::All, true, true);
        check(&Scope::Agent(BTreeSet::from(["a".to_owned()])), true, false);
        check(&Scope::Agent(BTreeSet::new()), false, false);
        check(&Scope::Server("b".to_owned()), false, true);
    }
}
