//! Every kind of package with every set of tools, as a table.

use std::collections::HashMap;

use toolrack_manager::PackageRequest;

use super::*;

const ALL: &[&str] = &["npm", "node", "uv", "python3", "docker"];

pub(crate) fn wanted(kind: PackageKind, identifier: &str, version: Option<&str>) -> PackageRequest {
    let package = Package {
        kind,
        identifier: identifier.to_owned(),
        version: version.map(str::to_owned),
        args: Vec::new(),
        program: None,
        runtime_hint: None,
        runtime_args: Vec::new(),
    };
    let (env, headers) = (HashMap::new(), HashMap::new());
    PackageRequest { server: "s".into(), package, env, cwd: None, headers }
}

/// The plan in one line, with `@` for the attempt directory.
fn show(plan: &InstallPlan) -> String {
    match plan {
        InstallPlan::Endpoint { url } => format!("connect {url}"),
        InstallPlan::Binary { command } => format!("start {command}"),
        InstallPlan::Runner { program, args } => format!("{program} {}", args.join(" ")),
        InstallPlan::Image { runtime, image } => format!("{runtime} {image}"),
        InstallPlan::Package(install) => {
            let dir = install.attempt_dir.display().to_string();
            let line = |command: &InstallCommand| {
                format!("{} {}", command.program, command.args.join(" "))
            };
            let lines: Vec<String> = install.commands.iter().map(line).collect();
            format!("{}: {}", install.name, lines.join(" && ").replace(&dir, "@"))
        }
    }
}

#[track_caller]
fn check(package: (PackageKind, &str, Option<&str>), programs: &[&str], expected: &str) {
    let (kind, identifier, version) = package;
    check_plan(&wanted(kind, identifier, version).package, programs, expected);
}

#[track_caller]
fn check_plan(package: &Package, programs: &[&str], expected: &str) {
    let has_program = |program: &str| programs.contains(&program);
    let planned = plan_install(package, has_program, Path::new("/data"), "1");
    let shown = match &planned {
        Ok(plan) => show(plan),
        Err(failure) => format!("{:?}: {failure}", failure.kind()),
    };
    assert_eq!(shown, expected);
}

#[test]
fn every_kind_of_package_has_its_plan() {
    check((PackageKind::Http, "https://a.dev/mcp", None), &[], "connect https://a.dev/mcp");
    check((PackageKind::Binary, "/opt/server", None), &[], "start /opt/server");
    check((PackageKind::Docker, "mcp/time", Some("1.0")), ALL, "docker mcp/time:1.0");
    check((PackageKind::Docker, "host:5000/x", None), ALL, "docker host:5000/x");
    check((PackageKind::Docker, "x", Some("sha256:0a")), ALL, "docker x@sha256:0a");
    check(
        (PackageKind::Npm, "@a/b", Some("1.2.3")),
        ALL,
        "@a/b: npm install --prefix=@ --no-audit --no-fund --no-progress --no-global --save --json \
         -- @a/b@1.2.3",
    );
    check(
        (PackageKind::Pypi, "a[x]", Some("1.2")),
        ALL,
        "a: uv venv --no-progress --no-project @/venv && uv pip install --no-progress \
         --python @/venv/bin/python -- a[x]==1.2",
    );
    check(
        (PackageKind::Pypi, "a", Some("latest")),
        &["python3"],
        "a: python3 -m venv --clear @/venv && @/venv/bin/python -m pip install --no-input \
         --disable-pip-version-check -- a",
    );
}

#[test]
fn missing_tool_is_named() {
    let nothing = &[];
    let npm = (PackageKind::Npm, "a", None);
    check(npm, nothing, "MissingTool: `node` is required but was not found in PATH");
    check(npm, &["node"], "MissingTool: `npm` is required but was not found in PATH");
    let pypi = (PackageKind::Pypi, "a", None);
    check(pypi, nothing, "MissingTool: `uv` or `python3` is required but was not found in PATH");
    let docker = (PackageKind::Docker, "a", None);
    check(docker, nothing, "MissingTool: `docker` is required but was not found in PATH");
}

/// Spec 004: `runtime_hint` names the program that runs the package.
#[test]
fn runtime_hint_runs_the_package() {
    let check = |kind, identifier, hint: &str, expected: [&str; 2]| {
        let mut package = wanted(kind, identifier, Some("1.2")).package;
        package.runtime_hint = Some(hint.to_owned());
        check_plan(&package, &[hint], expected[0]);
        package.program = Some("serve".to_owned());
        package.runtime_args = vec!["--quiet".to_owned()];
        check_plan(&package, &[hint], expected[1]);
    };
    let npm = |hint, expected| check(PackageKind::Npm, "@a/b", hint, expected);
    npm("npx", ["npx --yes @a/b@1.2", "npx --yes --package=@a/b@1.2 --quiet serve"]);
    npm("bunx", ["bunx @a/b@1.2", "bunx --package @a/b@1.2 --quiet serve"]);
    npm("pnpm", ["pnpm dlx @a/b@1.2", "pnpm --package=@a/b@1.2 dlx --quiet serve"]);
    let pypi = |hint, expected| check(PackageKind::Pypi, "a[x]", hint, expected);
    pypi("uvx", ["uvx --from a[x]==1.2 a", "uvx --from a[x]==1.2 --quiet serve"]);
    pypi("pipx", ["pipx run --spec a[x]==1.2 a", "pipx run --spec a[x]==1.2 --quiet serve"]);
    let image = |hint, expected| check(PackageKind::Docker, "mcp/time", hint, expected);
    image("docker", ["docker mcp/time:1.2"; 2]);
    image("podman", ["podman mcp/time:1.2"; 2]);
}

#[test]
fn missing_or_unknown_runner_is_named() {
    for kind in PackageKind::ALL {
        for runner in kind.runners() {
            let mut package = wanted(kind, "a", None).package;
            package.runtime_hint = Some((*runner).to_owned());
            let missing = format!("MissingTool: `{runner}` is required but was not found in PATH");
            check_plan(&package, &[], &missing);
            let failure = plan_install(&package, |_| false, Path::new("/data"), "1").unwrap_err();
            let hint = failure.hint().unwrap();
            let tool = runner.trim_end_matches('x');
            assert!(hint.starts_with("install ") && hint.to_lowercase().contains(tool), "{hint}");
        }
    }
    let mut package = wanted(PackageKind::Npm, "a", None).package;
    package.runtime_hint = Some("uvx".to_owned());
    check_plan(&package, ALL, "BadConfig: `uvx` does not run `npm` packages");
}

#[test]
fn invalid_names_are_rejected() {
    let npm = |name, version| (PackageKind::Npm, name, version);
    check(npm("--global", None), ALL, "BadConfig: `--global` is not a valid package name");
    check(npm("a", Some("-x")), ALL, "BadConfig: `-x` is not a valid version");
    check(npm(" ", None), ALL, "BadConfig: the package name is empty");
    let twice = "BadConfig: `@a/b@1` includes a version, but `version` is set too";
    check(npm("@a/b@1", Some("2")), ALL, twice);
    let image = (PackageKind::Docker, "-v/:/host", None);
    check(image, ALL, "BadConfig: `-v/:/host` is not a valid image name");
}

#[test]
fn dir_names_are_readable_and_unique() {
    let one = dir_name("@a/b@1.0", None);
    assert!(one.starts_with("a-b-1.0-"), "{one}");
    let others =
        [dir_name("@a/b@1.1", None), dir_name("@a-b@1.0", None), dir_name("@a/b@1.0", Some("x"))];
    assert!(!others.contains(&one), "{one} {others:?}");
}
