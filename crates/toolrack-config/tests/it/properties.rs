//! Properties of diff, resolution and interpolation.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use toolrack_config::{
    Agent, ConfigFile, EnvValue, McpServerConfig, McpTransport, ResolvedTransport, ServerEntry,
    Settings, VariableSource, diff, fingerprint, interpolate,
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

/// Entries with unique names.
fn entries() -> impl Strategy<Value = Vec<ServerEntry>> {
    proptest::collection::vec(entry(), 0..5).prop_map(|mut entries| {
        let mut seen = BTreeSet::new();
        entries.retain(|entry| seen.insert(entry.name.clone()));
        entries
    })
}

fn configs() -> impl Strategy<Value = Vec<McpServerConfig>> {
    entries()
        .prop_map(|entries| entries.iter().map(|item| item.config(&Settings::default())).collect())
}

fn names(configs: &[McpServerConfig]) -> BTreeSet<String> {
    configs.iter().map(|config| config.name.clone()).collect()
}

proptest! {
    #[test]
    fn diff_names_every_server_once(old in configs(), new in configs()) {
        let plan = diff(&old, &new);
        let lists = [&plan.connect, &plan.disconnect, &plan.reconnect, &plan.keep];
        let mut all: Vec<String> = lists.into_iter().flatten().cloned().collect();
        all.sort();
        let expected: Vec<String> = names(&old).union(&names(&new)).cloned().collect();
        prop_assert_eq!(all, expected);
        prop_assert!(plan.adjust.iter().all(|adjust| plan.keep.contains(adjust)));
    }

    #[test]
    fn diff_leads_from_old_to_new(old in configs(), new in configs()) {
        let plan = diff(&old, &new);
        let enabled = |value: &&McpServerConfig| value.enabled;
        let mut up: BTreeSet<&str> = old.iter().filter(enabled).map(|old| old.name.as_str()).collect();
        for name in &plan.disconnect {
            prop_assert!(up.remove(name.as_str()));
        }
        for name in &plan.connect {
            prop_assert!(up.insert(name));
        }
        prop_assert_eq!(up, new.iter().filter(enabled).map(|new| new.name.as_str()).collect());
        for name in &plan.reconnect {
            let of = |list: &[McpServerConfig]| list.iter().find(|list| list.name == *name).map(fingerprint);
            prop_assert_ne!(of(&old), of(&new));
        }
    }

    #[test]
    fn unchanged_servers_are_kept(configs in configs()) {
        let plan = diff(&configs, &configs);
        prop_assert_eq!(&plan.keep, &configs.iter().map(|config| config.name.clone()).collect::<Vec<_>>());
        prop_assert!(plan.is_empty());
    }

    #[test]
    fn fingerprint_covers_the_transport_only(one in entry(), two in entry()) {
        let (one, two) = (one.config(&Settings::default()), two.config(&Settings::default()));
        prop_assert_eq!(fingerprint(&one) == fingerprint(&two), one.transport == two.transport);
    }

    #[test]
    fn agent_has_defaults_and_its_own_servers(defaults in entries(), own in entries()) {
        let file = ConfigFile {
            defaults: defaults.clone(),
            agents: vec![Agent { id: "main".to_owned(), mcp: own.clone() }],
            ..ConfigFile::default()
        };
        let resolved = file.resolve("main");
        let wanted: BTreeSet<String> = defaults.iter().chain(&own).map(|default| default.name.clone()).collect();
        prop_assert_eq!(names(&resolved), wanted.clone());
        prop_assert_eq!(resolved.len(), wanted.len());
        for config in &resolved {
            let mine = own.iter().find(|own| own.name == config.name);
            let source = mine.or(defaults.iter().find(|default| default.name == config.name)).unwrap();
            prop_assert_eq!(config, &source.config(&Settings::default()));
        }
        let order: Vec<_> = resolved.iter().take(defaults.len()).map(|resolved| &resolved.name).collect();
        prop_assert_eq!(order, defaults.iter().map(|default| &default.name).collect::<Vec<_>>());
        prop_assert_eq!(file.resolve("other"), file.resolve_defaults());
    }

    #[test]
    fn overlay_with_itself_changes_nothing(defaults in entries(), own in entries()) {
        let file = ConfigFile {
            defaults,
            agents: vec![Agent { id: "main".to_owned(), mcp: own }],
            ..ConfigFile::default()
        };
        prop_assert_eq!(file.clone().overlay(file.clone()), file);
    }

    #[test]
    fn values_are_inserted_verbatim(value in "[A${}:-]{0,12}", before in "[a-z ]{0,5}", after in "[a-z ]{0,5}") {
        let template = format!("{before}${{A}}{after}");
        let config = McpServerConfig::stdio("a", "x", &[&template]);
        let lookup = |_: VariableSource, _: &str| Ok(Some(value.clone()));
        let ResolvedTransport::Stdio { args, .. } = interpolate(&config, &lookup).unwrap() else {
            panic!("a process")
        };
        prop_assert_eq!(args[0].reveal(), format!("{before}{value}{after}"));
    }

    #[test]
    fn defaults_are_not_looked_up_again(templates in proptest::collection::vec("[AB${}:a-]{0,12}", 0..4)) {
        let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
        let config = McpServerConfig::stdio("a", "x", &templates);
        let asked = std::cell::Cell::new(0_usize);
        let lookup = |_: VariableSource, _: &str| {
            asked.set(asked.get() + 1);
            Ok(Some("${A}${B}".to_owned()))
        };
        let _resolved = interpolate(&config, &lookup);
        let most: usize = templates.iter().map(|template| template.matches("${").count()).sum();
        prop_assert!(asked.get() <= most);
    }
}

#[test]
fn fingerprint_is_stable() {
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
