//! Every address range, and ways to write an address around the check.

use super::*;

#[track_caller]
fn check_class(expected: AddressClass, addresses: &[&str]) {
    for address in addresses {
        assert_eq!(classify(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn address_ranges_are_classified() {
    check_class(AddressClass::Loopback, &["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]);
    check_class(
        AddressClass::Private,
        &["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd00::1"],
    );
    check_class(AddressClass::Private, &["::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::"]);
    check_class(
        AddressClass::Forbidden,
        &["0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "fe80::1", "ff02::1"],
    );
    check_class(AddressClass::Forbidden, &["::ffff:169.254.169.254", "192.0.2.1", "2001:db8::1"]);
    check_class(AddressClass::Forbidden, &["fec0::1", "198.18.0.1"]);
    // Teredo: 10.0.0.1 is the embedded address.
    check_class(AddressClass::Forbidden, &["2001::1", "2001:0:102:304::f5ff:fffe"]);
    check_class(AddressClass::Public, &["1.1.1.1", "172.32.0.1", "2606:4700::1", "100.128.0.1"]);
    check_class(AddressClass::Public, &["::ffff:1.1.1.1", "192.169.0.1", "9.255.255.255"]);
}

fn check(server: &str, discovered: &str) -> Result<(), AuthError> {
    AddressPolicy::for_server(&Url::parse(server).unwrap()).check(&Url::parse(discovered).unwrap())
}

#[track_caller]
fn allowed(server: &str, discovered: &str) {
    assert_eq!(check(server, discovered), Ok(()), "{server} {discovered}");
}

#[track_caller]
fn rejected(server: &str, discovered: &str) {
    let found = check(server, discovered);
    assert!(matches!(found, Err(AuthError::Untrusted { .. })), "{server} {discovered} {found:?}");
}

#[test]
fn public_server_cannot_name_private_addresses() {
    let server = "https://mcp.example/mcp";
    allowed(server, "https://auth.example/x");
    allowed(server, "https://1.1.1.1/x");
    for trick in [
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.0.0.1./",
        "https://localhost/",
        "https://LOCALHOST./",
        "https://x.localhost/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[::7f00:1]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[2002:7f00:1::]/",
        "https://[2001:0:102:304::80ff:fffe]/",
        "https://[fd00::1]/",
        "https://[fe80::1]/",
        "https://[::]/",
        "https://0/",
        "https://0.0.0.0/",
        "https://10.0.0.1/",
        "https://172.20.0.1/",
        "https://192.168.0.1/",
        "https://3232235521/",
        "https://169.254.169.254/latest/meta-data",
        "https://0xa9fea9fe/",
        "https://100.100.100.200/",
        "https://１２７.0.0.1/",
        "https://127%2E0%2E0%2E1/",
        "https://user@auth.example/",
        "https://a:b@auth.example/",
    ] {
        rejected(server, trick);
    }
}

#[test]
fn http_is_allowed_only_on_loopback() {
    rejected("https://mcp.example/", "http://auth.example/");
    rejected("https://mcp.example/", "http://127.0.0.1/");
    allowed("http://localhost:3000/mcp", "http://localhost:4000/token");
    allowed("http://localhost:3000/mcp", "http://127.0.0.1:4000/token");
    allowed("http://localhost:3000/mcp", "http://[::1]:4000/token");
    rejected("http://localhost:3000/mcp", "http://10.0.0.1/token");
    rejected("http://localhost:3000/mcp", "http://auth.example/token");
    for scheme in ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x"] {
        rejected("http://localhost:3000/mcp", scheme);
    }
    rejected("http://localhost:3000/mcp", "ftp://auth.example/");
}

#[test]
fn private_server_may_name_private_addresses() {
    allowed("https://10.0.0.5/mcp", "https://10.0.0.6/");
    rejected("https://10.0.0.5/mcp", "https://127.0.0.1/");
    rejected("https://10.0.0.5/mcp", "https://169.254.169.254/");
    allowed("http://127.0.0.1/mcp", "https://192.168.1.1/");
    rejected("http://127.0.0.1/mcp", "https://169.254.169.254/");
    let policy = AddressPolicy::for_server(&Url::parse("https://mcp.corp/mcp").unwrap());
    assert!(!policy.allows("10.0.0.6".parse().unwrap()));
    assert!(policy.with_private().allows("10.0.0.6".parse().unwrap()));
    assert!(!policy.with_private().allows("127.0.0.1".parse().unwrap()));
}

#[test]
fn display_url_has_no_secrets() {
    let display = |text: &str| display_url(&Url::parse(text).unwrap());
    assert_eq!(display("https://u:p@h:8443/a?code=c#f"), "https://h:8443/a");
    assert_eq!(display("data:text/html,x"), "a URL of the scheme data");
}
