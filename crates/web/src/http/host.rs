//! The names by which a client may call the server. Another site can let its own name point to our
//! address, and its page could then read our answers (DNS rebinding). But the browser sends that
//! site's name as the host. So requests are answered only for names that no other site has:
//! loopback names, the address to which the client has connected, and the names given by `--host`.

use std::net::IpAddr;

/// The names that are answered.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    others: Vec<String>,
}

impl Hosts {
    /// Loopback names, the server's address, and these.
    pub fn new(others: &[String]) -> Hosts {
        Hosts { others: others.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect() }
    }

    /// True if a client that has connected to `local` may call the server by this name. The port
    /// does not count: a tunnel has its own.
    pub fn include(&self, host: &str, local: IpAddr) -> bool {
        let Some(name) = without_port(host) else { return false };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        // An IPv6 address is always in brackets, and nothing else is.
        let address = match bare {
            Some(bare) => bare.parse().ok().filter(IpAddr::is_ipv6),
            None => name.parse().ok().filter(IpAddr::is_ipv4),
        };
        match address {
            Some(address) => address.is_loopback() || address == canonical(local) || self.others.contains(&name),
            None => name == "localhost" || name.ends_with(".localhost") || self.others.contains(&name),
        }
    }
}

/// The address of a socket for both families in the form that a client writes.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The name of `name:port`; `None` if no port follows the colon.
fn without_port(host: &str) -> Option<&str> {
    let name_end = host.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match host.get(name_end..)?.rfind(':') {
        Some(at) => (host.get(..name_end + at)?, host.get(name_end + at + 1..)?),
        None => (host, ""),
    };
    (!name.is_empty() && port.len() <= 5 && port.bytes().all(|digit| digit.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_has_are_answered() {
        let hosts = Hosts::new(&["Shaper.Example.".to_owned()]);
        let local: IpAddr = "192.0.2.7".parse().unwrap();
        for host in [
            "localhost",
            "LOCALHOST:8017",
            "localhost.:1",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9:80",
            "[::1]",
            "[::1]:8017",
            "192.0.2.7",
            "192.0.2.7:8017",
            "shaper.example",
            "SHAPER.example.:443",
        ] {
            assert!(hosts.include(host, local), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "192.0.2.8",
            "[2001:db8::1]",
            "::1",
            "[127.0.0.1]",
            "localhost:80:80",
            "localhost:x",
            "localhost:123456",
            "localhost/",
            "a b",
            "user@localhost",
            "0x7f.1",
            "2130706433",
        ] {
            assert!(!hosts.include(host, local), "{host}");
        }
        let local: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        assert!(hosts.include("192.0.2.7", local));
        assert!(hosts.include("[2001:db8::1]:80", "2001:db8::1".parse().unwrap()));
        assert!(!hosts.include("", "::".parse().unwrap()));
    }
}
