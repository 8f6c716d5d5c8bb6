//! `cargo xtask dashboard`: the page in a real browser, against a real daemon with real servers.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::child::{Chore, Ending, is_installed};
use crate::forward::{exit_code, target_dir};
use crate::servers::{self, Outcome};
use crate::suite::WORKSPACE;
use crate::{printer, tidy};

const BUILD_LIMIT: Duration = Duration::from_mins(45);
const RUN_LIMIT: Duration = Duration::from_mins(10);

/// Where the pictures of the documents are.
const PICTURES: &str = "docs/images";

/// What the story is told with.
const PROGRAMS: [&str; 4] = ["--example", "daemon", "--bin", "demo-server"];

/// Names under which the browser is installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// What becomes of the screenshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pictures {
    /// They are looked at by nobody.
    InTarget,
    /// They become those of the documents.
    InDocs,
}

pub(crate) fn run(root: &Path, pictures: Pictures) -> Result<ExitCode> {
    let browser = match equipment(root)? {
        Ok(browser) => browser,
        Err(reason) => {
            printer::say(&format!("SKIPPED: dashboard: {reason}"));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let build = Chore::new("cargo", root, BUILD_LIMIT).args(["build"]).args(WORKSPACE);
    let build = build.args(PROGRAMS);
    let ending = build.attached()?;
    if ending != Ending::Success {
        printer::complain(&format!("error: `{}`: {ending}", build.line()));
        return Ok(exit_code(ending));
    }
    let tests = root.join(servers::DASHBOARD_DIR);
    let unit = Chore::new("node", &tests, RUN_LIMIT).args(["--test", "unit.js"]).attached()?;
    let target = target_dir(&tidy::metadata(root)?)?;
    let folder = match pictures {
        Pictures::InTarget => target.join("dashboard"),
        Pictures::InDocs => root.join(PICTURES),
    };
    let story = Chore::new("node", &tests, RUN_LIMIT)
        .args(["browser.js"])
        .args([target.join("debug/examples/daemon"), target.join("debug/demo-server")])
        .args([browser])
        .args([folder])
        .attached()?;
    Ok(exit_code(if unit == Ending::Success { story } else { unit }))
}

/// The browser, or what this machine lacks.
fn equipment(root: &Path) -> Result<std::result::Result<&'static str, String>> {
    let Some(browser) = BROWSERS.into_iter().find(|it| is_installed(it, root)) else {
        return Ok(Err("Chromium is missing: `apt-get install chromium`".to_owned()));
    };
    Ok(match servers::install_dashboard(root)? {
        Outcome::Skipped(reason) => Err(reason),
        Outcome::UpToDate | Outcome::Installed => Ok(browser),
    })
}
