//! Where the config file and the data are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::settings::Variable;

/// Where things are. Without a home of any kind there is nowhere to look, and nothing is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Home {
    config_file: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    is_config_given: bool,
}

impl Home {
    /// Finds the home by what is set, and by a config file that was asked for.
    pub(crate) fn find(
        config: Option<PathBuf>,
        set: &dyn Fn(Variable) -> Option<OsString>,
    ) -> Self {
        let (usual_config, data_dir) = match set(Variable::Home).map(PathBuf::from) {
            Some(home) => (Some(home.join("toolrack.toml")), Some(home)),
            None => {
                let config_dir = xdg(set, Variable::XdgConfigHome, ".config");
                let data_dir = xdg(set, Variable::XdgDataHome, ".local/share");
                (config_dir.map(|it| it.join("toolrack.toml")), data_dir)
            }
        };
        let is_config_given = config.is_some();
        Self { config_file: config.or(usual_config), data_dir, is_config_given }
    }

    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config_file.as_deref()
    }

    /// Whether somebody asked for this very config file, so that it has to be there.
    pub(crate) fn is_config_given(&self) -> bool {
        self.is_config_given
    }

    /// Where tools are remembered.
    pub(crate) fn catalog_dir(&self) -> Option<PathBuf> {
        self.data_dir.as_ref().map(|it| it.join("catalog"))
    }
}

/// Our directory below one of the XDG directories. A relative one is ignored, as the XDG rules say.
fn xdg(
    set: &dyn Fn(Variable) -> Option<OsString>,
    variable: Variable,
    usual: &str,
) -> Option<PathBuf> {
    let given = set(variable).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = given.or_else(|| Some(PathBuf::from(set(Variable::UserHome)?).join(usual)))?;
    Some(base.join("toolrack"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(Variable, &str)], config: Option<&str>, catalog: Option<&str>) {
        let set = |it: Variable| {
            variables.iter().find(|(name, _)| *name == it).map(|(_, value)| OsString::from(value))
        };
        let home = Home::find(None, &set);
        assert_eq!(home.config_file(), config.map(Path::new));
        assert_eq!(home.catalog_dir().as_deref(), catalog.map(Path::new));
        let given = Home::find(Some("x.toml".into()), &set);
        assert_eq!(
            (given.config_file(), given.is_config_given()),
            (Some(Path::new("x.toml")), true)
        );
        assert_eq!(given.catalog_dir(), home.catalog_dir());
    }

    #[test]
    fn a_home_is_found_by_the_usual_rules() {
        check(&[], None, None);
        let user = (Variable::UserHome, "/u");
        check(
            &[user],
            Some("/u/.config/toolrack/toolrack.toml"),
            Some("/u/.local/share/toolrack/catalog"),
        );
        check(
            &[user, (Variable::XdgConfigHome, "/c"), (Variable::XdgDataHome, "relative")],
            Some("/c/toolrack/toolrack.toml"),
            Some("/u/.local/share/toolrack/catalog"),
        );
        check(&[user, (Variable::Home, "/h")], Some("/h/toolrack.toml"), Some("/h/catalog"));
    }
}
