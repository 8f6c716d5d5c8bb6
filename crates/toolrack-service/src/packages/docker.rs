//! Docker and Podman: checks the engine, pulls images, runs servers in containers, and removes containers of dead
//! processes.
//!
//! A container outlives the `docker` process that started it. The cleanup command of a server therefore removes its
//! container by name, and a container that a crash left behind is found by its label at the next start.
//!
//! **Invariant:** values of variables reach the container through the environment of `docker`, never through its
//! arguments, which every user of the machine can read.

use std::time::Duration;

use toolrack_manager::{ErrorKind, Failure, PackageRequest, PreparedServer};
use toolrack_stdio::{CleanupCommand, McpServerDef, is_orphaned, new_process_tag};

use super::CommandRunner;
use super::install_error;

/// Label that identifies the process a container belongs to.
const LABEL: &str = "dev.toolrack.run";

/// Timeout of a simple query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of removing containers.
const REMOVE_TIMEOUT: Duration = Duration::from_mins(1);

/// Options that would keep Toolrack from finding or removing the container.
const RESERVED_OPTIONS: &[&str] = &["--name", "--detach", "-d", "--cidfile", "--rm=false"];

/// Pulls the image if needed, and returns how the server is run with `runtime`, which is `docker` or `podman`.
pub(super) async fn prepare(
    runtime: &'static str,
    image: &str,
    wanted: PackageRequest,
    runner: &CommandRunner<'_>,
) -> Result<PreparedServer, Failure> {
    check_runtime_args(&wanted.package.runtime_args)?;
    check_engine_running(runtime, runner).await?;
    // A killed process could not run its cleanup command, so its container still runs.
    remove_orphans(runtime, runner).await;
    let inspect = ["image", "inspect", "--format={{.Id}}", "--", image];
    if !runner.query(runtime, &inspect, QUERY_TIMEOUT).await?.is_success() {
        runner.installation.report_started();
        let args = ["pull", "--quiet", "--", image].map(str::to_owned);
        let pulled = runner.run(runtime, &args, None).await?;
        if !pulled.is_success() {
            return Err(install_error::pull_failure(runtime, image, &pulled));
        }
    }
    let mark = new_process_tag();
    let name = container_name(&wanted.server, &mark);
    let args = run_args(image, &wanted, (&name, &mark));
    let mut env = runner.env.clone();
    env.extend(wanted.env);
    let definition = McpServerDef { command: runtime.to_owned(), args, env, cwd: wanted.cwd };
    let args = ["rm", "--force", "--volumes", "--", &name].map(str::to_owned).to_vec();
    let cleanup = Some(CleanupCommand { command: runtime.to_owned(), args });
    Ok(PreparedServer::Stdio { definition, cleanup })
}

async fn check_engine_running(runtime: &str, runner: &CommandRunner<'_>) -> Result<(), Failure> {
    let (query, name, kind) = match runtime {
        // Podman has no server on Linux, and `info` asks the engine on every system.
        "podman" => (["info", "--format={{.Version.Version}}"], "Podman", ErrorKind::CannotStart),
        _ => (["version", "--format={{.Server.Version}}"], "Docker", ErrorKind::DockerNotRunning),
    };
    let cause = match runner.query(runtime, &query, QUERY_TIMEOUT).await {
        Ok(finished) if finished.is_success() => return Ok(()),
        Ok(finished) => finished.last_stderr_line().to_owned(),
        Err(failure) if failure.kind() == ErrorKind::InstallTimedOut => {
            format!("no response within {QUERY_TIMEOUT:?}")
        }
        Err(failure) => return Err(failure),
    };
    let [command, _] = query;
    Err(Failure::new(kind, format!("{name} is not responding: {cause}")).with_hint(format!(
        "start {name}, and check that `{runtime} {command}` works for your user"
    )))
}

/// Removes the containers of dead processes. A failure is retried at the next start.
async fn remove_orphans(runtime: &str, runner: &CommandRunner<'_>) {
    let filter = format!("--filter=label={LABEL}");
    let format = format!("--format={{{{.ID}}}} {{{{.Label \"{LABEL}\"}}}}");
    let listed = runner
        .query(runtime, &["ps", "--all", "--no-trunc", &filter, &format], QUERY_TIMEOUT)
        .await;
    let Ok(listed) = listed.inspect_err(|error| tracing::debug!(%error, "cannot list containers"))
    else {
        return;
    };
    // By owner: a container of another Toolrack that still runs is not touched.
    let orphans = orphans(&listed.stdout, &is_orphaned);
    if orphans.is_empty() {
        return;
    }
    let mut args = vec!["rm", "--force", "--volumes", "--"];
    args.extend(&orphans);
    match runner.query(runtime, &args, REMOVE_TIMEOUT).await {
        Ok(finished) if finished.is_success() => {
            tracing::info!(n = orphans.len(), "removed orphaned containers");
        }
        Ok(finished) => {
            tracing::warn!("cannot remove orphaned containers: {}", finished.last_stderr_line());
        }
        Err(error) => tracing::warn!(%error, "cannot remove orphaned containers"),
    }
}

/// The ids of listed containers whose owner is dead.
fn orphans<'l>(list: &'l str, is_orphaned: &dyn Fn(&str) -> bool) -> Vec<&'l str> {
    let pairs = list.lines().filter_map(|line| line.trim().split_once(' '));
    pairs.filter(|(_, mark)| is_orphaned(mark)).map(|(id, _)| id).collect()
}

fn check_runtime_args(args: &[String]) -> Result<(), Failure> {
    let is_reserved = |arg: &&String| {
        RESERVED_OPTIONS
            .iter()
            .any(|option| arg.as_str() == *option || arg.starts_with(&format!("{option}=")))
    };
    match args.iter().find(is_reserved) {
        Some(arg) => {
            let reason = format!("`{arg}` is not allowed in `package.runtime_args`");
            Err(Failure::new(ErrorKind::BadConfig, reason)
                .with_hint("remove it: Toolrack names, watches and removes containers itself"))
        }
        None => Ok(()),
    }
}

/// A unique container name that includes the name of the server.
fn container_name(server: &str, mark: &str) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
    let server: String = server.chars().map(safe).take(40).collect();
    format!("toolrack-{server}-{mark}")
}

fn run_args(image: &str, wanted: &PackageRequest, (name, mark): (&str, &str)) -> Vec<String> {
    // `--init`: reaps zombies and forwards signals. `--pull=never`: the image is there, and a start must not wait for
    // the registry. `--log-driver=none`: Docker would otherwise keep a copy of all stdio traffic.
    let fixed = ["run", "--rm", "--interactive", "--init", "--pull=never", "--log-driver=none"];
    let mut args: Vec<String> = fixed.map(str::to_owned).to_vec();
    args.push(format!("--name={name}"));
    args.push(format!("--label={LABEL}={mark}"));
    let mut variables: Vec<&String> = wanted.env.keys().collect();
    variables.sort_unstable();
    // The name alone: Docker takes the value from its own environment.
    args.extend(variables.into_iter().map(|name| format!("--env={name}")));
    args.extend(wanted.package.runtime_args.iter().cloned());
    args.extend(["--".to_owned(), image.to_owned()]);
    args.extend(wanted.package.args.iter().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::super::install_plan::tests::wanted;
    use super::*;
    use toolrack_config::PackageKind;

    #[test]
    fn container_args_contain_names_but_no_secrets() {
        let mut package = wanted(PackageKind::Docker, "img", None);
        package.package.args = vec!["--stdio".to_owned()];
        package.package.runtime_args = vec!["--network=none".to_owned()];
        package.env.insert("TOKEN".to_owned(), "s3cret".to_owned());
        let name = container_name("my server", "1.b.2.3.4.5");
        let args = run_args("img:1", &package, (&name, "1.b.2.3.4.5"));
        assert_eq!(
            args.join(" "),
            "run --rm --interactive --init --pull=never --log-driver=none \
             --name=toolrack-my_server-1.b.2.3.4.5 --label=dev.toolrack.run=1.b.2.3.4.5 \
             --env=TOKEN --network=none -- img:1 --stdio"
        );
    }

    #[test]
    fn only_containers_of_dead_owners_are_orphans() {
        let list = "a1 dead\nb2 alive\n\nc3 dead\nbroken";
        assert_eq!(orphans(list, &|mark| mark == "dead"), ["a1", "c3"]);
    }

    #[track_caller]
    fn check(arg: &str, expected: Result<(), ErrorKind>) {
        let outcome = check_runtime_args(&["--network=none".to_owned(), arg.to_owned()]);
        assert_eq!(outcome.map_err(|failure| failure.kind()), expected, "{arg}");
    }

    #[test]
    fn reserved_docker_options_are_rejected() {
        check("--volume=/a:/b", Ok(()));
        check("--dns=1.1.1.1", Ok(()));
        check("--name", Err(ErrorKind::BadConfig));
        check("--name=x", Err(ErrorKind::BadConfig));
        check("-d", Err(ErrorKind::BadConfig));
    }
}
