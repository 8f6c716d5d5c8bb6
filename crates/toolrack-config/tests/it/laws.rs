//! Laws of comparing, inheriting and filling in, for any configs.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use toolrack_config::{
    Agent, ConfigFile, EnvValue, McpServerConfig, McpTransport, ResolvedTransport, ServerEntry,
    Settings, Source, diff, fingerprint, interpolate,
};

fn transport() -> impl Strategy<Value = McpTransport> {
    let word = "[ab$:{}]{0,4}";
    let env = proptest::collection::hash_map("[AB]", word.prop_map(EnvValue::Text), 0..2);
    let stdio = (word, proptest::collection::vec(word, 0..3), env, proptest::option::of(word))
        .prop_map(|(command, args, env, cwd)| McpTransport::Stdio { command, args, env, cwd });
    let headers = proptest::collection::hash_map("[AB]", word, 0..2);
    let http = (word, headers).prop_map(|(url, headers)| McpTransport::Http { url, headers });
    prop_oneof![stdio, http]
}

fn entry() -> impl Strategy<Value = ServerEntry> {
    ("[a-d]", any::<bool>(), transport(), proptest::option::of(1..3_u64)).prop_map(
        |(name, enabled, transport, timeout)| ServerEntry {
            enabled,
            settings: Settings { timeout: timeout.map(Duration::from_secs), ..Settings::default() },
            ..ServerEntry::new(name, transport)
        },
    )
}

/// Entries with different names.
fn entries() -> impl Strategy<Value = Vec<ServerEntry>> {
    proptest::collection::vec(entry(), 0..5).prop_map(|mut entries| {
        let mut seen = BTreeSet::new();
        entries.retain(|it| seen.insert(it.name.clone()));
        entries
    })
}

fn configs() -> impl Strategy<Value = Vec<McpServerConfig>> {
    entries().prop_map(|it| it.iter().map(|it| it.config(&Settings::default())).collect())
}

fn names(configs: &[McpServerConfig]) -> BTreeSet<String> {
    configs.iter().map(|it| it.name.clone()).collect()
}

proptest! {
    #[test]
    fn a_plan_has_every_name_once(old in configs(), new in configs()) {
        let plan = diff(&old, &new);
        let lists = [&plan.connect, &plan.disconnect, &plan.reconnect, &plan.keep];
        let mut all: Vec<String> = lists.into_iter().flatten().cloned().collect();
        all.sort();
        let expected: Vec<String> = names(&old).union(&names(&new)).cloned().collect();
        prop_assert_eq!(all, expected);
        prop_assert!(plan.adjust.iter().all(|it| plan.keep.contains(it)));
    }

    #[test]
    fn a_plan_leads_from_the_old_to_the_new(old in configs(), new in configs()) {
        let plan = diff(&old, &new);
        let enabled = |it: &&McpServerConfig| it.enabled;
        let mut up: BTreeSet<&str> = old.iter().filter(enabled).map(|it| it.name.as_str()).collect();
        for name in &plan.disconnect {
            prop_assert!(up.remove(name.as_str()));
        }
        for name in &plan.connect {
            prop_assert!(up.insert(name));
        }
        prop_assert_eq!(up, new.iter().filter(enabled).map(|it| it.name.as_str()).collect());
        for name in &plan.reconnect {
            let of = |list: &[McpServerConfig]| list.iter().find(|it| it.name == *name).map(fingerprint);
            prop_assert_ne!(of(&old), of(&new));
        }
    }

    #[test]
    fn what_is_the_same_is_kept(configs in configs()) {
        let plan = diff(&configs, &configs);
        prop_assert_eq!(&plan.keep, &configs.iter().map(|it| it.name.clone()).collect::<Vec<_>>());
        prop_assert!(plan.is_empty());
    }

    #[test]
    fn a_fingerprint_is_the_way_to_the_server(one in entry(), two in entry()) {
        let (one, two) = (one.config(&Settings::default()), two.config(&Settings::default()));
        prop_assert_eq!(fingerprint(&one) == fingerprint(&two), one.transport == two.transport);
    }

    #[test]
    fn an_agent_has_the_defaults_and_its_own(defaults in entries(), own in entries()) {
        let file = ConfigFile {
            defaults: defaults.clone(),
            agents: vec![Agent { id: "main".to_owned(), mcp: own.clone() }],
            ..ConfigFile::default()
        };
        let resolved = file.resolve("main");
        let wanted: BTreeSet<String> = defaults.iter().chain(&own).map(|it| it.name.clone()).collect();
        prop_assert_eq!(names(&resolved), wanted.clone());
        prop_assert_eq!(resolved.len(), wanted.len());
        for config in &resolved {
            let mine = own.iter().find(|it| it.name == config.name);
            let source = mine.or(defaults.iter().find(|it| it.name == config.name)).unwrap();
            prop_assert_eq!(config, &source.config(&Settings::default()));
        }
        let order: Vec<_> = resolved.iter().take(defaults.len()).map(|it| &it.name).collect();
        prop_assert_eq!(order, defaults.iter().map(|it| &it.name).collect::<Vec<_>>());
        prop_assert_eq!(file.resolve("other"), file.resolve_defaults());
    }

    #[test]
    fn laying_a_file_over_itself_changes_nothing(defaults in entries(), own in entries()) {
        let file = ConfigFile {
            defaults,
            agents: vec![Agent { id: "main".to_owned(), mcp: own }],
            ..ConfigFile::default()
        };
        prop_assert_eq!(file.clone().overlaid_by(file.clone()), file);
    }

    #[test]
    fn values_go_in_as_they_are(value in "[A${}:-]{0,12}", before in "[a-z ]{0,5}", after in "[a-z ]{0,5}") {
        let template = format!("{before}${{A}}{after}");
        let config = McpServerConfig::stdio("a", "x", &[&template]);
        let lookup = |_: Source, _: &str| Ok(Some(value.clone()));
        let ResolvedTransport::Stdio { args, .. } = interpolate(&config, &lookup).unwrap() else {
            panic!("a process")
        };
        prop_assert_eq!(args[0].reveal(), format!("{before}{value}{after}"));
    }

    #[test]
    fn nothing_is_looked_up_twice_over(templates in proptest::collection::vec("[AB${}:a-]{0,12}", 0..4)) {
        let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
        let config = McpServerConfig::stdio("a", "x", &templates);
        let asked = std::cell::Cell::new(0_usize);
        let lookup = |_: Source, _: &str| {
            asked.set(asked.get() + 1);
            Ok(Some("${A}${B}".to_owned()))
        };
        let _resolved = interpolate(&config, &lookup);
        let most: usize = templates.iter().map(|it| it.matches("${").count()).sum();
        prop_assert!(asked.get() <= most);
    }
}

#[test]
fn a_fingerprint_is_the_same_in_every_run() {
    let mut config = McpServerConfig::stdio("any", "npx", &["-y", "server"]);
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("a process") };
    *env = HashMap::from([("A".into(), "1".into()), ("B".into(), "${X}".into())]);
    let before = fingerprint(&config);
    assert_eq!(before.to_hex(), "39b29fbfdb98b97009ecb28a0161f70ca84dc467a13784a76a332335155d4820");
    config.name = "other".to_owned();
    config.timeout = Duration::from_secs(1);
    config.deny = vec!["x".to_owned()];
    config.enabled = false;
    assert_eq!(fingerprint(&config), before);
    config.inherit_env = true;
    assert_ne!(fingerprint(&config), before);
}
