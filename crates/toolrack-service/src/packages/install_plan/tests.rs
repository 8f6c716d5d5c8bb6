//! Every kind of package with every set of tools, as a table.

use std::collections::HashMap;

use super::*;

const ALL: Tools = Tools { npm: true, node: true, uv: true, python: true, docker: true };

pub(crate) fn wanted(kind: PackageKind, identifier: &str, version: Option<&str>) -> WantedPackage {
    WantedPackage {
        server: "s".into(),
        kind,
        identifier: identifier.to_owned(),
        version: version.map(str::to_owned),
        args: Vec::new(),
        program: None,
        runtime_args: Vec::new(),
        env: HashMap::new(),
        cwd: None,
        headers: HashMap::new(),
    }
}

/// The recipe in one line, with `@` for the folder.
fn show(recipe: &Recipe) -> String {
    match recipe {
        Recipe::Endpoint { url } => format!("reach {url}"),
        Recipe::Program { command } => format!("start {command}"),
        Recipe::Image(image) => format!("image {image}"),
        Recipe::Folder(folder) => {
            let dir = folder.dir.display().to_string();
            let line = |it: &Step| format!("{} {}", it.program, it.args.join(" "));
            let lines: Vec<String> = folder.steps.iter().map(line).collect();
            format!("{}: {}", folder.name, lines.join(" && ").replace(&dir, "@"))
        }
    }
}

#[track_caller]
fn check(package: (PackageKind, &str, Option<&str>), tools: Tools, expected: &str) {
    let (kind, identifier, version) = package;
    let planned = plan(
        &wanted(kind, identifier, version),
        tools,
        Site { root: Path::new("/data"), attempt: "1" },
    );
    let shown = match &planned {
        Ok(recipe) => show(recipe),
        Err(failure) => format!("{:?}: {failure}", failure.kind()),
    };
    assert_eq!(shown, expected);
}

#[test]
fn every_kind_of_package_has_its_recipe() {
    check(
        (PackageKind::Http, "https://a.dev/mcp", None),
        Tools::default(),
        "reach https://a.dev/mcp",
    );
    check((PackageKind::Binary, "/opt/server", None), Tools::default(), "start /opt/server");
    check((PackageKind::Docker, "mcp/time", Some("1.0")), ALL, "image mcp/time:1.0");
    check((PackageKind::Docker, "host:5000/x", None), ALL, "image host:5000/x");
    check((PackageKind::Docker, "x", Some("sha256:0a")), ALL, "image x@sha256:0a");
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
        Tools { uv: false, ..ALL },
        "a: python3 -m venv --clear @/venv && @/venv/bin/python -m pip install --no-input \
         --disable-pip-version-check -- a",
    );
}

#[test]
fn a_missing_tool_is_named() {
    let nothing = Tools::default();
    let npm = (PackageKind::Npm, "a", None);
    check(npm, nothing, "MissingTool: `node` is needed and was not found in PATH");
    let tools = Tools { node: true, ..nothing };
    check(npm, tools, "MissingTool: `npm` is needed and was not found in PATH");
    let pypi = (PackageKind::Pypi, "a", None);
    check(pypi, nothing, "MissingTool: `uv` or `python3` is needed and was not found in PATH");
    let docker = (PackageKind::Docker, "a", None);
    check(docker, nothing, "MissingTool: `docker` is needed and was not found in PATH");
}

#[test]
fn names_that_cannot_be_names_are_refused() {
    let npm = |name, version| (PackageKind::Npm, name, version);
    check(npm("--global", None), ALL, "BadConfig: `--global` cannot be used as package name");
    check(npm("a", Some("-x")), ALL, "BadConfig: `-x` cannot be used as version name");
    check(npm(" ", None), ALL, "BadConfig: the name of the package is empty");
    let twice = "BadConfig: `@a/b@1` names a version, and `version` names one too";
    check(npm("@a/b@1", Some("2")), ALL, twice);
    let image = (PackageKind::Docker, "-v/:/host", None);
    check(image, ALL, "BadConfig: `-v/:/host` cannot be used as image name");
}

#[test]
fn folders_are_readable_and_differ() {
    let one = key("@a/b@1.0", None);
    assert!(one.starts_with("a-b-1.0-"), "{one}");
    let others = [key("@a/b@1.1", None), key("@a-b@1.0", None), key("@a/b@1.0", Some("x"))];
    assert!(!others.contains(&one), "{one} {others:?}");
}
