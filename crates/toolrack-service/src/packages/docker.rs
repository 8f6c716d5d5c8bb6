//! Servers in containers: is Docker there, is the image there, how it is run, and how it is ended for certain.
//!
//! A container outlives the `docker` program that started it. Whoever ends that program therefore also removes
//! the container by its name, and what a crash has left behind is found by its label at the next start.
//!
//! **Invariant:** values of variables reach the container through the environment of `docker`, never through its
//! arguments, which everybody on the machine can read.

use std::time::Duration;

use toolrack_manager::{Failure, FailureKind, Prepared, WantedPackage};
use toolrack_stdio::{Farewell, McpServerDef, is_orphaned, new_mark};

use super::Worker;
use super::install_error;

/// Names the process that a container belongs to.
const LABEL: &str = "dev.toolrack.run";

/// How long Docker may take to answer a simple question.
const ANSWER: Duration = Duration::from_secs(20);

/// How long removing containers may take.
const REMOVAL: Duration = Duration::from_mins(1);

/// Options that would take the container out of our hands.
const OURS: &[&str] = &["--name", "--detach", "-d", "--cidfile", "--rm=false"];

/// Has the image there, and says how it is run.
pub(super) async fn prepare(
    image: &str,
    wanted: WantedPackage,
    worker: &Worker<'_>,
) -> Result<Prepared, Failure> {
    refuse_ours(&wanted.runtime_args)?;
    check_daemon(worker).await?;
    sweep(worker).await;
    let question = ["image", "inspect", "--format={{.Id}}", "--", image];
    if !worker.ask("docker", &question, ANSWER).await?.is_success() {
        worker.installation.begin();
        let args = ["pull", "--quiet", "--", image].map(str::to_owned);
        let pulled = worker.run("docker", &args, None).await?;
        if !pulled.is_success() {
            return Err(install_error::judge_pull(image, &pulled));
        }
    }
    let mark = new_mark();
    let name = container_name(&wanted.server, &mark);
    let args = run_args(image, &wanted, (&name, &mark));
    let mut env = worker.env.clone();
    env.extend(wanted.env);
    let definition = McpServerDef { command: "docker".to_owned(), args, env, cwd: wanted.cwd };
    let args = ["rm", "--force", "--volumes", "--", &name].map(str::to_owned).to_vec();
    let farewell = Some(Farewell { command: "docker".to_owned(), args });
    Ok(Prepared::Stdio { definition, farewell })
}

async fn check_daemon(worker: &Worker<'_>) -> Result<(), Failure> {
    let answer = worker.ask("docker", &["version", "--format={{.Server.Version}}"], ANSWER).await;
    let said = match answer {
        Ok(finished) if finished.is_success() => return Ok(()),
        Ok(finished) => finished.last_words().to_owned(),
        Err(failure) if failure.kind() == FailureKind::InstallTimedOut => {
            format!("no answer within {ANSWER:?}")
        }
        Err(failure) => return Err(failure),
    };
    Err(Failure::new(FailureKind::DockerNotRunning, format!("Docker does not answer: {said}"))
        .hinting("start Docker, check that you may use it, and that `docker version` works"))
}

/// Removes the containers of processes that are no more. What fails is tried again at the next start.
async fn sweep(worker: &Worker<'_>) {
    let filter = format!("--filter=label={LABEL}");
    let format = format!("--format={{{{.ID}}}} {{{{.Label \"{LABEL}\"}}}}");
    let listed =
        worker.ask("docker", &["ps", "--all", "--no-trunc", &filter, &format], ANSWER).await;
    let Ok(listed) = listed.inspect_err(|error| tracing::debug!(%error, "no list of containers"))
    else {
        return;
    };
    let orphans = orphans(&listed.output, &is_orphaned);
    if orphans.is_empty() {
        return;
    }
    let mut args = vec!["rm", "--force", "--volumes", "--"];
    args.extend(&orphans);
    match worker.ask("docker", &args, REMOVAL).await {
        Ok(finished) if finished.is_success() => {
            tracing::info!(n = orphans.len(), "removed containers that a crash had left behind");
        }
        Ok(finished) => tracing::warn!("containers are left behind: {}", finished.last_words()),
        Err(error) => tracing::warn!(%error, "containers are left behind"),
    }
}

/// The containers of a list whose mark names nobody who lives.
fn orphans<'l>(list: &'l str, is_orphaned: &dyn Fn(&str) -> bool) -> Vec<&'l str> {
    let pairs = list.lines().filter_map(|line| line.trim().split_once(' '));
    pairs.filter(|(_, mark)| is_orphaned(mark)).map(|(id, _)| id).collect()
}

fn refuse_ours(args: &[String]) -> Result<(), Failure> {
    let is_ours = |arg: &&String| {
        OURS.iter().any(|it| arg.as_str() == *it || arg.starts_with(&format!("{it}=")))
    };
    match args.iter().find(is_ours) {
        Some(arg) => {
            let reason = format!("`{arg}` in `package.runtime_args` is not for you to set");
            Err(Failure::new(FailureKind::BadConfig, reason)
                .hinting("leave it out: containers are named, watched and removed by us"))
        }
        None => Ok(()),
    }
}

/// A name that says whose container it is, and that nobody else has.
fn container_name(server: &str, mark: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '-' { it } else { '_' };
    let server: String = server.chars().map(plain).take(40).collect();
    format!("toolrack-{server}-{mark}")
}

fn run_args(image: &str, wanted: &WantedPackage, (name, mark): (&str, &str)) -> Vec<String> {
    let fixed = ["run", "--rm", "--interactive", "--init", "--pull=never", "--log-driver=none"];
    let mut args: Vec<String> = fixed.map(str::to_owned).to_vec();
    args.push(format!("--name={name}"));
    args.push(format!("--label={LABEL}={mark}"));
    let mut variables: Vec<&String> = wanted.env.keys().collect();
    variables.sort_unstable();
    args.extend(variables.into_iter().map(|it| format!("--env={it}")));
    args.extend(wanted.runtime_args.iter().cloned());
    args.extend(["--".to_owned(), image.to_owned()]);
    args.extend(wanted.args.iter().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::super::install_plan::tests::wanted;
    use super::*;
    use toolrack_config::PackageKind;

    #[test]
    fn a_container_is_run_by_name_and_its_secrets_stay_out_of_sight() {
        let mut package = wanted(PackageKind::Docker, "img", None);
        package.args = vec!["--stdio".to_owned()];
        package.runtime_args = vec!["--network=none".to_owned()];
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
    fn only_containers_without_an_owner_are_orphans() {
        let list = "a1 dead\nb2 alive\n\nc3 dead\nbroken";
        assert_eq!(orphans(list, &|mark| mark == "dead"), ["a1", "c3"]);
    }

    #[track_caller]
    fn check(arg: &str, expected: Result<(), FailureKind>) {
        let outcome = refuse_ours(&["--network=none".to_owned(), arg.to_owned()]);
        assert_eq!(outcome.map_err(|it| it.kind()), expected, "{arg}");
    }

    #[test]
    fn what_would_take_a_container_out_of_our_hands_is_refused() {
        check("--volume=/a:/b", Ok(()));
        check("--dns=1.1.1.1", Ok(()));
        check("--name", Err(FailureKind::BadConfig));
        check("--name=x", Err(FailureKind::BadConfig));
        check("-d", Err(FailureKind::BadConfig));
    }
}
