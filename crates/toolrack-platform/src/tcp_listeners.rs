//! The user whose program listens on a TCP port, from `/proc/net/tcp` and `/proc/net/tcp6` of Linux.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of a listening socket in the table.
const LISTEN: &str = "0A";

/// The user id of the program that listens on an address, or on all addresses with the same port. `None` if there is
/// none, or the system does not tell.
pub fn tcp_listener_user(addr: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter();
    let mut tables = tables.filter_map(|path| fs::read_to_string(path).ok());
    tables.find_map(|table| find_user(&table, addr))
}

fn find_user(table: &str, addr: SocketAddr) -> Option<u32> {
    table.lines().filter_map(parse_listener).find_map(|(local, user)| {
        let is_same_ip = local.ip() == addr.ip() || local.ip().is_unspecified();
        (is_same_ip && local.port() == addr.port()).then_some(user)
    })
}

/// The address and user of a listening socket.
fn parse_listener(line: &str) -> Option<(SocketAddr, u32)> {
    let mut columns = line.split_whitespace().skip(1);
    let (local, state) = (columns.next()?, columns.nth(1)?);
    let user = columns.nth(3)?.parse().ok()?;
    let (ip, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTEN).then_some((SocketAddr::new(parse_ip(ip)?, port), user))
}

/// An address of the table: words of 32 bits, each printed as a number in the byte order of the machine.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(8 * index..8 * index + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn table_is_parsed() {
        let rest = "00000000:00000000 00:00000000 00000000";
        let v4 = format!(
            "{HEAD}   0: 0100007F:1E35 00000000:0000 0A {rest}  1001        0 1 1\n   \
             1: 0100007F:1E36 0100007F:9999 01 {rest}  1002        0 1 1\n   \
             2: 00000000:1E37 00000000:0000 0A {rest}  1003        0 1 1\nrubbish\n"
        );
        let v6 = format!(
            "{HEAD}   0: 00000000000000000000000001000000:1E35 {:032}:0000 0A {rest}  1004        0 1 1\n",
            0
        );
        let check = |table: &str, addr: &str, expected: Option<u32>| {
            assert_eq!(find_user(table, addr.parse().unwrap()), expected, "{addr}");
        };
        check(&v4, "127.0.0.1:7733", Some(1001));
        // A connection is no listener.
        check(&v4, "127.0.0.1:7734", None);
        check(&v4, "127.0.0.1:7735", Some(1003));
        check(&v4, "127.0.0.2:7733", None);
        check(&v6, "[::1]:7733", Some(1004));
        check(&v6, "[::2]:7733", None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_listener_is_found() {
        let own = rustix::process::geteuid().as_raw();
        for addr in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = std::net::TcpListener::bind(addr) else { continue };
            let addr = listener.local_addr().unwrap();
            assert_eq!(tcp_listener_user(addr), Some(own), "{addr}");
            drop(listener);
            assert_eq!(tcp_listener_user(addr), None, "{addr}");
        }
    }
}
