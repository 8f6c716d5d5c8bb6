//! `cargo xtask dashboard`: tests the dashboard in Chromium, against a real daemon with real servers.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::commands::has_flag;
use crate::install;
use crate::release_program::{build, exit_code, target_dir};
use crate::subprocess::{ExitResult, Subprocess, is_installed};
use crate::test::WORKSPACE;
use crate::tidy;

const RUN_LIMIT: Duration = Duration::from_mins(10);

/// Folder of the pictures in the docs.
const PICTURES: &str = "docs/images";

/// Programs that the browser test starts.
const PROGRAMS: [&str; 4] = ["--example", "daemon", "--bin", "demo-server"];

/// Names under which the browser is installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let in_docs = has_flag("dashboard", args, "--pictures")?;
    let browser = match find_browser(root)? {
        Ok(browser) => browser,
        Err(reason) => {
            crate::print(&format!("SKIPPED: dashboard: {reason}"));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let exit = build(root, &[&WORKSPACE[..], &PROGRAMS].concat())?;
    if exit != ExitResult::Success {
        return Ok(exit_code(exit));
    }
    let tests = root.join(install::DASHBOARD.dir);
    let unit = Subprocess::new("node", &tests, RUN_LIMIT).args(["--test", "unit.js"]).attached()?;
    let target = target_dir(&tidy::metadata(root)?)?;
    let folder = if in_docs { root.join(PICTURES) } else { target.join("dashboard") };
    let browser_test = Subprocess::new("node", &tests, RUN_LIMIT)
        .args(["browser.js"])
        .args([target.join("debug/examples/daemon"), target.join("debug/demo-server")])
        .args([browser])
        .args([folder])
        .attached()?;
    Ok(exit_code(if unit == ExitResult::Success { browser_test } else { unit }))
}

/// The browser, or the reason why the test cannot run here.
fn find_browser(root: &Path) -> Result<std::result::Result<&'static str, String>> {
    let Some(browser) = BROWSERS.into_iter().find(|name| is_installed(name, root)) else {
        return Ok(Err("Chromium is missing: `apt-get install chromium`".to_owned()));
    };
    Ok(install::install_npm(root, &install::DASHBOARD)?.skipped().map_or(Ok(browser), Err))
}
