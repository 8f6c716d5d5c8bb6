//! Property tests: any config round-trips through the config file, and an edit changes nothing else.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolrack_service::{
    ConfigScope, Document, EnvVarConfig, McpConfig, McpPackage, McpPackageType, McpSource,
    McpTransport,
};
use uuid::Uuid;

/// Text with all characters that TOML has to escape.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "[ -~]{1,12}", r#"["'\\\n\r\t\u{7f}ü€#\[\]={}, ]{1,8}"#]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        (-1e12_f64..1e12).prop_map(Value::from),
        Just(Value::Null),
        Just(Value::from(u64::MAX)),
        text().prop_map(|text| json!({ "$json": text })),
        Just(json!({ "$json": "null" })),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn variable() -> impl Strategy<Value = EnvVarConfig> {
    let name = || "[A-Z]{1,6}";
    let plain =
        (name(), text(), any::<[bool; 2]>()).prop_map(|(name, value, flags)| EnvVarConfig {
            name,
            value: Some(value),
            secret_ref: None,
            is_secret: flags[0],
            required: flags[1],
        });
    let secret = (name(), "[a-z.-]{1,8}", any::<bool>()).prop_map(|(name, secret, required)| {
        EnvVarConfig { name, value: None, secret_ref: Some(secret), is_secret: true, required }
    });
    let unset = (name(), any::<bool>()).prop_map(|(name, is_secret)| EnvVarConfig {
        name,
        value: None,
        secret_ref: None,
        is_secret,
        required: false,
    });
    prop_oneof![plain, secret, unset]
}

fn source() -> impl Strategy<Value = McpSource> {
    prop_oneof![
        Just(McpSource::Manual),
        ("[a-z./]{1,8}", "[0-9.]{1,5}")
            .prop_map(|(name, version)| McpSource::Official { name, version }),
        "[@a-z/]{1,8}".prop_map(|qualified_name| McpSource::Smithery { qualified_name }),
    ]
}

/// A package and its transport.
fn package() -> impl Strategy<Value = (McpPackage, McpTransport)> {
    let kinds =
        [McpPackageType::Npm, McpPackageType::Pypi, McpPackageType::Docker, McpPackageType::Binary];
    let option = || proptest::option::of("[0-9a-z.]{1,6}");
    let program =
        (proptest::sample::select(kinds.to_vec()), "[a-z@/._-]{1,12}", option(), 0..4_usize)
            .prop_map(|(package_type, identifier, version, n)| {
                let runtime_hint = package_type.runners().get(n).map(|hint| (*hint).to_owned());
                let package = McpPackage { package_type, identifier, version, runtime_hint };
                (package, McpTransport::Stdio)
            });
    let url = || "https://[a-z]{1,8}\\.dev/[a-z]{0,4}";
    let endpoint = (url(), prop_oneof![Just(None), "[a-z./]{1,8}".prop_map(Some)], option())
        .prop_map(|(url, name, version)| {
            let package = McpPackage {
                package_type: McpPackageType::Http,
                identifier: name.unwrap_or_else(|| url.clone()),
                version,
                runtime_hint: None,
            };
            (package, McpTransport::Http { url })
        });
    prop_oneof![program, endpoint]
}

/// Keys without a field of their own, known and unknown.
fn rest() -> impl Strategy<Value = Value> {
    let texts = proptest::collection::vec("[ -#%-~]{0,8}", 0..4).prop_map(Value::from);
    let known = prop_oneof![
        texts.prop_map(|args| ("args".to_owned(), args)),
        Just(("timeout".to_owned(), json!("5s"))),
        Just(("deny".to_owned(), json!(["a*", "b"]))),
        Just(("headers".to_owned(), json!({ "X-Key": "k" }))),
        Just(("package".to_owned(), json!({ "runtime_args": ["-q"], "x_more": { "a": 1 } }))),
        Just(("package".to_owned(), json!({ "program": "p" }))),
    ];
    // Also names of the entry's own fields: in `config` they are free-form.
    let field = prop_oneof![Just("url"), Just("name"), Just("config"), Just("env"), Just("id")];
    let name = prop_oneof!["x_[a-z]{1,4}", text(), field.prop_map(str::to_owned)];
    let unknown = (name, value());
    let key = prop_oneof![known, unknown];
    let keys = proptest::collection::vec(key, 0..5);
    let object = keys.prop_map(|keys| Value::Object(keys.into_iter().collect()));
    prop_oneof![1 => Just(Value::Null), 8 => object, 1 => value()]
}

fn config() -> impl Strategy<Value = McpConfig> {
    let variables = proptest::collection::vec(variable(), 0..3);
    ("[a-z]{1,8}", any::<bool>(), source(), package(), variables, rest()).prop_map(
        |(name, enabled, source, (package, transport), variables, config)| McpConfig {
            id: Uuid::nil(),
            name,
            enabled,
            source,
            package,
            transport,
            env_vars: variables
                .into_iter()
                .map(|variable| (variable.name.clone(), variable))
                .collect::<BTreeMap<_, _>>(),
            config,
        },
    )
}

fn parse(text: &str) -> Document {
    Document::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const BEFORE: &str = "# first\r\nx = 1   # one\n[[defaults.mcp]] # a\nname = 'before'\nid = '0190a6b2-0000-7000-8000-00000000000a'\ncommand =  'x'\n\n";
const AFTER: &str = "\n# agents follow\n[[agents]]\nid = \"main\"\n  [[agents.mcp]]\n  name = 'after'\n  id = '0190a6b2-0000-7000-8000-00000000000b'\n  url = 'https://a.dev'  # here\n[odd]\n\"key\" = [ 1,2 ]\n# no end";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn config_round_trips_through_toml(config in config()) {
        let mut document = parse("");
        let id = document.add(&ConfigScope::Defaults, &config).unwrap();
        let read = parse(&document.text()).get(id).unwrap().config;
        prop_assert_eq!(&read, &McpConfig { id, ..config }, "{}", document.text());
        prop_assert_eq!(&read.config, &parse(&document.text()).get(id).unwrap().config.config);
    }

    #[test]
    fn replacing_an_entry_changes_nothing_else(one in config(), two in config()) {
        let mut document = parse(&format!("{BEFORE}{AFTER}"));
        let one = McpConfig { name: format!("n-{}", one.name), ..one };
        let id = document.add(&ConfigScope::Defaults, &one).unwrap();
        let with_one = document.text();
        let two = McpConfig { id, name: format!("n-{}", two.name), ..two };
        let mut document = parse(&with_one);
        document.replace(&two).unwrap();
        let text = document.text();
        prop_assert!(text.starts_with(BEFORE), "{}", text);
        prop_assert!(text.ends_with(AFTER), "{}", text);
        prop_assert_eq!(&parse(&text).get(id).unwrap().config, &two, "{}", text);
        let mut document = parse(&text);
        document.replace(&two).unwrap();
        prop_assert_eq!(document.text(), text.clone());
        document.remove(id).unwrap();
        prop_assert_eq!(document.text(), format!("{BEFORE}{AFTER}"));
    }
}
