//! All rules of the firewalls as their programs list them: altq's own, and those of others that
//! hand packets to a queue before altq's do.

use super::program::run;
use super::{Fail, Firewall, Steer, iptables, nft};
use crate::netns::Namespace;

/// All rules, without counters.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    /// What nft lists.
    nft: String,
    /// What iptables and ip6tables list of the table mangle; empty if no link has rules there.
    mangle: Vec<String>,
}

/// Reads all rules, in the network namespace of the calling thread.
pub fn ruleset() -> Ruleset {
    let nft = of_nft().unwrap_or_default();
    let native = nft.lines().any(|line| line.starts_with("table inet altq-") || line.starts_with("table bridge altq-"));
    let mangle = if native { Vec::new() } else { iptables::mangle() };
    Ruleset { nft, mangle }
}

/// What nft lists, without the elements of sets, which may be many; an older nft does not know that
/// option.
fn of_nft() -> Result<String, String> {
    run("nft", &["-s", "-t", "list", "ruleset"], "").or_else(|_| run("nft", &["-s", "list", "ruleset"], ""))
}

/// Reads all rules, of which a firewall has altq's, in the network namespace of the calling thread.
///
/// # Errors
/// What the firewall's program says that does not list them.
pub fn read(of: Firewall) -> Result<Ruleset, String> {
    match of {
        Firewall::Nft => Ok(Ruleset { nft: of_nft()?, mangle: Vec::new() }),
        // Its own rules are listed by iptables; nft, where it is there, lists those of others.
        Firewall::Iptables => Ok(Ruleset { nft: of_nft().unwrap_or_default(), mangle: iptables::listed()? }),
    }
}

/// The rules that a link asks for, as the firewall's programs list them: they are put into a
/// network namespace that is made for it, where nothing else stands.
///
/// # Errors
/// There can be no namespace, or the firewall refuses the rules.
pub fn expected(steer: &Steer, of: Firewall) -> Result<Vec<String>, String> {
    let namespace = Namespace::new().map_err(|error| format!("no network namespace can be made: {error}"))?;
    let list = || -> Result<Vec<String>, String> {
        match of {
            Firewall::Nft => nft::set(steer)?,
            Firewall::Iptables => iptables::put(steer)?,
        }
        let (lines, _) = read(of)?.of(&steer.interface, steer.ingress).ok_or("the rules are not listed")?;
        Ok(lines)
    };
    namespace.run(list).map_err(|error| format!("no network namespace can be entered: {error}"))?
}

impl Ruleset {
    /// The lines of altq's rules for an interface and a direction, and which firewall has them;
    /// `None` if there are none.
    pub fn of(&self, interface: &str, ingress: bool) -> Option<(Vec<String>, Firewall)> {
        for port in [false, true] {
            let steer = steer(interface, ingress, port);
            let head = format!("table {} {{", nft::table(&steer));
            let block: Vec<String> = self
                .nft
                .lines()
                .skip_while(|line| *line != head)
                .take_while(|line| *line != "}")
                .map(str::to_owned)
                .collect();
            if !block.is_empty() {
                return Some((block, Firewall::Nft));
            }
        }
        let chains = iptables::chains(&steer(interface, ingress, false));
        let ours = |line: &&str| line.split_whitespace().any(|word| chains.iter().any(|chain| chain == word));
        let lines = self.mangle.iter().enumerate().flat_map(|(family, text)| {
            text.lines().filter(ours).map(move |line| format!("{}{line}", if family == 0 { "" } else { "ip6tables " }))
        });
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then_some((lines, Firewall::Iptables))
    }

    /// A line for each foreign rule that hands packets of an interface to a queue before altq's
    /// rule does. Such packets wait there first, or do not reach altq at all. `by`: the firewall
    /// that has altq's rule.
    pub fn in_front(&self, interface: &str, ingress: bool, by: Firewall) -> Vec<String> {
        let mut found = nft_in_front(&self.nft, interface, ingress, by);
        if by == Firewall::Iptables {
            let [queue, _] = iptables::chains(&steer(interface, ingress, false));
            found.extend(self.mangle.iter().flat_map(|text| mangle_in_front(text, &queue, ingress)));
        }
        found
    }

    /// A line for each flow table that makes packets of the interface bypass all rules.
    pub fn flow_tables(&self, interface: &str) -> Vec<String> {
        nft::past(&self.nft, interface)
    }
}

fn steer(interface: &str, ingress: bool, port: bool) -> Steer {
    Steer { interface: interface.to_owned(), ingress, port, queue: 0, dscp: Vec::new(), fail: Fail::Open }
}

/// Rules of nftables that queue before altq's, without those that name only other interfaces.
fn nft_in_front(text: &str, interface: &str, ingress: bool, by: Firewall) -> Vec<String> {
    // Rules of iptables that nftables lists as well are compared in the form of iptables.
    let listed_twice = |table: &str| {
        let mut words = table.split(' ');
        let (family, name) = (words.next(), words.next());
        by == Firewall::Iptables && matches!(family, Some("ip" | "ip6")) && name == Some("mangle")
    };
    let (mut table, mut chain, mut place, mut found) = ("", "", None, Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("table ") {
            (table, place) = (rest.trim_end_matches(" {"), None);
        } else if let Some(rest) = line.strip_prefix("chain ") {
            (chain, place) = (rest.trim_end_matches(" {"), None);
        } else if line.starts_with("type ") && line.contains(" hook ") {
            place = hook(line, table.starts_with("bridge "));
        } else if queues(line)
            && !table.split(' ').nth(1).is_some_and(|name| name.starts_with("altq-"))
            && !listed_twice(table)
            && concerns(line, interface, ingress)
            && place.is_none_or(|(hook, priority)| is_before(hook, priority, ingress))
        {
            found.push(format!("table {table}, chain {chain}, queues packets before altq does: `{line}`"));
        }
    }
    found
}

/// True if a rule hands packets to a queue.
fn queues(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| *word != "queue");
    let queue = words.next().is_some() && matches!(words.next(), None | Some("num" | "to" | "flags"));
    // The form in which nft lists a rule of iptables that it cannot express.
    queue || line.contains("xt target \"NFQUEUE\"")
}

/// False if a rule names only other interfaces, for the direction of the link.
fn concerns(line: &str, interface: &str, ingress: bool) -> bool {
    let word = if ingress { "iifname" } else { "oifname" };
    let mut behind = line.split_whitespace().skip_while(|found| *found != word);
    behind.next().is_none() || behind.any(|found| found.trim_matches(['"', ',']) == interface)
}

/// The hook of a chain and its priority; `None` if that is not understood.
fn hook(line: &str, bridge: bool) -> Option<(&str, i32)> {
    let behind = line.split_once(" hook ")?.1;
    let hook = behind.split_whitespace().next()?;
    let priority = behind.split_once("priority ")?.1.split(';').next()?;
    let mut words = priority.split_whitespace();
    let first = words.next()?;
    // See nft(8), "priority"; a bridge has other numbers.
    let base = match (first, bridge) {
        ("raw", _) => -300,
        ("mangle", _) => -150,
        ("dstnat", false) => -100,
        ("dstnat", true) => -300,
        ("filter", false) => 0,
        ("filter", true) => -200,
        ("security", _) => 50,
        ("out", _) => 100,
        ("srcnat", false) => 100,
        ("srcnat", true) => 300,
        (number, _) => number.parse().ok()?,
    };
    let offset = match (words.next(), words.next().and_then(|number| number.parse::<i32>().ok())) {
        (Some("+"), Some(number)) => number,
        (Some("-"), Some(number)) => -number,
        _ => 0,
    };
    Some((hook, base + offset))
}

/// True if a packet passes a hook before altq's rule.
fn is_before(hook: &str, priority: i32, ingress: bool) -> bool {
    let (own, at, earlier): (&str, i32, &[&str]) = if ingress {
        ("prerouting", nft::INGRESS, &[])
    } else {
        ("postrouting", nft::EGRESS, &["prerouting", "forward", "output"])
    };
    earlier.contains(&hook) || hook == own && priority <= at
}

/// Rules of the table mangle, as `-S` lists them, that queue before the jump to altq's chain.
fn mangle_in_front(text: &str, own: &str, ingress: bool) -> Vec<String> {
    let mut passed: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("-A"), Some(chain)) = (words.next(), words.next()) else { continue };
        let target = words.skip_while(|word| *word != "-j").nth(1).unwrap_or_default();
        if target == own {
            passed.push(chain);
        } else if target == "NFQUEUE" && !chain.starts_with("altq-") {
            let before = match chain {
                // A packet that is queued here still reaches altq's chain, but later.
                "PREROUTING" if !ingress => true,
                "PREROUTING" | "FORWARD" | "OUTPUT" => !passed.contains(&chain) && (chain == "PREROUTING") == ingress,
                "INPUT" | "POSTROUTING" => false,
                // A chain of the user, to which some hook may lead.
                _ => true,
            };
            if before {
                found.push(format!("a rule of iptables queues packets before altq does: `{line}`"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.0.6 prints rules; the names of priorities are those of nft(8).
    const NFT: &str = "table inet ids {
\tchain forward {
\t\ttype filter hook forward priority filter; policy accept;
\t\tqueue num 7 bypass
\t}

\tchain late {
\t\ttype filter hook postrouting priority srcnat - 5; policy accept;
\t\tqueue flags bypass to 8
\t}

\tchain early {
\t\ttype filter hook prerouting priority mangle; policy accept;
\t\tiifname \"b\" queue to 9
\t}
}
table inet altq-out-a {
\tchain hold {
\t\ttype filter hook postrouting priority -140; policy accept;
\t\toifname \"a\" queue num 24000 bypass
\t}
}
";

    #[test]
    fn rules_of_others_are_told_from_altq_s() {
        let all = Ruleset { nft: NFT.to_owned(), mangle: Vec::new() };
        let (own, by) = all.of("a", false).unwrap();
        assert_eq!((own.len(), by, own[0].as_str()), (5, Firewall::Nft, "table inet altq-out-a {"));
        assert!(all.of("a", true).is_none() && all.of("b", false).is_none());
        let front = |interface: &str, ingress| -> Vec<String> {
            all.in_front(interface, ingress, Firewall::Nft)
                .iter()
                .filter_map(|line| line.split_once('`').map(|(_, rule)| rule.trim_end_matches('`').to_owned()))
                .collect()
        };
        // What leaves by `a` was forwarded, and perhaps came in at `b`. What comes in at `a` did
        // not come in at `b`.
        assert_eq!(front("a", false), ["queue num 7 bypass", "iifname \"b\" queue to 9"]);
        assert_eq!(front("a", true), Vec::<String>::new());
        assert_eq!(front("b", true), ["iifname \"b\" queue to 9"]);
    }

    #[test]
    fn priorities_are_numbers_or_names() {
        for (line, bridge, found) in [
            ("type filter hook output priority -150; policy accept;", false, Some(("output", -150))),
            ("type filter hook postrouting priority srcnat + 10;", false, Some(("postrouting", 110))),
            ("type filter hook forward priority filter - 5; policy drop;", true, Some(("forward", -205))),
            ("type filter hook forward priority odd;", false, None),
        ] {
            assert_eq!(hook(line, bridge), found, "{line}");
        }
    }

    #[test]
    fn rules_of_iptables_in_front_are_those_above_the_jump() {
        let text = "-P FORWARD ACCEPT\n-N altq-out-a\n-N ids\n\
            -A FORWARD -j NFQUEUE --queue-num 1\n-A FORWARD -o a -j altq-out-a\n-A FORWARD -j NFQUEUE --queue-num 2\n\
            -A OUTPUT -o a -j altq-out-a\n-A POSTROUTING -j NFQUEUE --queue-num 3\n\
            -A altq-out-a -j NFQUEUE --queue-num 24000 --queue-bypass\n-A ids -j NFQUEUE --queue-num 4\n";
        let numbers = |own: &str, ingress| -> Vec<String> {
            let lines = mangle_in_front(text, own, ingress);
            lines.iter().map(|line| line.rsplit(' ').next().unwrap().trim_end_matches('`').to_owned()).collect()
        };
        assert_eq!(numbers("altq-out-a", false), ["1", "4"]);
        assert_eq!(numbers("altq-in-a", true), ["4"]);
        let all = Ruleset { nft: String::new(), mangle: vec![text.to_owned(), String::new()] };
        let (own, by) = all.of("a", false).unwrap();
        assert_eq!((own.len(), by), (4, Firewall::Iptables));
    }
}
