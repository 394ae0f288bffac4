//! The rules in iptables and ip6tables: two chains of the table mangle for each link.
//!
//! After a queue a packet goes on to the next hook, not to the next rule, and only the table mangle
//! may change DSCP and ECN. So packets that leave are queued where they are forwarded or sent, and
//! their marks are read after routing. Packets that come in are queued before routing, and their
//! marks are read where they are forwarded or delivered.

use std::fmt::Write;

use super::super::marks;
use super::program::{is_absent, is_busy, run};
use super::{Fail, Steer};

/// The programs of the two families.
const PROGRAMS: [(&str, &str); 2] = [("iptables", "iptables-restore"), ("ip6tables", "ip6tables-restore")];

/// The sysctls of IPv6, and those that make a bridge's frames pass the rules of each program.
const FAMILY6: &str = "/proc/sys/net/ipv6";
const BRIDGED: [&str; 2] =
    ["/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"];

/// Sets the rules, or replaces them.
pub fn set(steer: &Steer) -> Result<(), String> {
    if steer.interface.ends_with('+') {
        return Err(format!("`{}` would stand for all interfaces whose names begin so", steer.interface));
    }
    let hidden = |path: &&str| std::fs::read_to_string(path).map_or(true, |value| value.trim() != "1");
    if steer.port && BRIDGED.iter().take(programs().count()).any(hidden) {
        return Err(format!(
            "{} is a port of a bridge, whose frames iptables does not see; `modprobe br_netfilter` and \
             `sysctl net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1` show them",
            steer.interface
        ));
    }
    put(steer)
}

/// The same, whether or not they would see packets.
pub fn put(steer: &Steer) -> Result<(), String> {
    for (list, restore) in programs() {
        let before = run(list, &["-w", "5", "-t", "mangle", "-S"], "")?;
        run(restore, &["-w", "5", "--noflush"], &rules(steer, &before, list == PROGRAMS[1].0))?;
    }
    Ok(())
}

/// Removes the rules, if there are any.
///
/// # Errors
/// What a program says, also that there is no iptables.
pub fn remove(steer: &Steer) -> Result<(), String> {
    remove_where(steer, |_| false)
}

/// The same, also where no iptables can list rules: then it has none of altq's.
///
/// # Errors
/// What a program says that does not remove rules, or is kept from its work by another one.
pub fn clear(steer: &Steer) -> Result<(), String> {
    remove_where(steer, |said| !is_busy(said))
}

/// `absent`: whether a program that says this has no rules.
fn remove_where(steer: &Steer, absent: fn(&str) -> bool) -> Result<(), String> {
    let mut result = Ok(());
    for (list, restore) in programs() {
        let removed = match run(list, &["-w", "5", "-t", "mangle", "-S"], "") {
            Ok(before) => {
                let text = no_rules(steer, &before);
                if text.is_empty() { Ok(()) } else { run(restore, &["-w", "5", "--noflush"], &text).map(drop) }
            }
            Err(said) if absent(&said) => Ok(()),
            Err(said) => Err(said),
        };
        result = result.and(removed);
    }
    result
}

/// True if the rules exist in one of the families.
pub fn is_there(steer: &Steer) -> bool {
    let [queue, _] = chains(steer);
    let stands = |(list, _): (&str, &str)| {
        run(list, &["-w", "5", "-t", "mangle", "-S"], "").is_ok_and(|text| made(&text).any(|chain| chain == queue))
    };
    programs().any(stands)
}

/// All rules of the table, for each family that the kernel has; empty for one that is not listed.
pub fn mangle() -> Vec<String> {
    list().map(Result::unwrap_or_default).collect()
}

/// The same, with what a program says that does not list them.
pub fn listed() -> Result<Vec<String>, String> {
    list().collect()
}

fn list() -> impl Iterator<Item = Result<String, String>> {
    programs().map(|(list, _)| run(list, &["-w", "5", "-t", "mangle", "-S"], ""))
}

/// altq's chains, in both families; none where there is no iptables.
///
/// # Errors
/// What a program says that does not list them.
pub fn ours() -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for listed in list() {
        match listed {
            Ok(text) => found.extend(made(&text).filter(|chain| chain.starts_with("altq-")).map(str::to_owned)),
            Err(said) if is_absent(&said) => {}
            Err(said) => return Err(said),
        }
    }
    Ok(found)
}

/// The chains that `-S` has listed.
fn made(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("-N "))
}

/// The programs for the families that the kernel has.
fn programs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let families = if std::fs::exists(FAMILY6).unwrap_or(true) { 2 } else { 1 };
    PROGRAMS.into_iter().take(families)
}

/// The chain that queues, and the one that writes.
pub fn chains(steer: &Steer) -> [String; 2] {
    let queue = format!("altq-{}-{}", steer.direction(), steer.interface);
    let write = format!("{queue}.w");
    [queue, write]
}

/// The rules that lead to the link's chains, as `-S` has listed them, to be deleted.
fn jumps(before: &str, chains: &[String; 2]) -> String {
    let ours = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next() == Some("-A")
            && !chains.iter().any(|chain| Some(chain.as_str()) == words.clone().next())
            && words.skip_while(|word| *word != "-j").nth(1).is_some_and(|to| chains.iter().any(|chain| chain == to))
    };
    before.lines().filter(ours).fold(String::new(), |text, line| text + "-D" + line.trim_start_matches("-A") + "\n")
}

fn no_rules(steer: &Steer, before: &str) -> String {
    let chains = chains(steer);
    let there: Vec<&String> = chains
        .iter()
        .filter(|chain| before.lines().any(|line| line.strip_prefix("-N ") == Some(chain.as_str())))
        .collect();
    if there.is_empty() {
        return String::new();
    }
    let mut text = format!("*mangle\n{}", jumps(before, &chains));
    for command in ["-F", "-X"] {
        there.iter().for_each(|chain| _ = writeln!(text, "{command} {chain}"));
    }
    text + "COMMIT\n"
}

/// `six`: for IPv6.
fn rules(steer: &Steer, before: &str, six: bool) -> String {
    let chains = chains(steer);
    let [queue, write] = &chains;
    let interface = &steer.interface;
    let of = match (steer.port, steer.ingress) {
        (false, false) => format!("-o {interface}"),
        (false, true) => format!("-i {interface}"),
        (true, false) => format!("-m physdev --physdev-is-bridged --physdev-out {interface}"),
        (true, true) => format!("-m physdev --physdev-in {interface}"),
    };
    let (queued, written): (&[&str], &[&str]) = match (steer.port, steer.ingress) {
        (false, false) => (&["FORWARD", "OUTPUT"], &["POSTROUTING"]),
        (true, false) => (&["FORWARD"], &["POSTROUTING"]),
        (_, true) => (&["PREROUTING"], &["INPUT", "FORWARD"]),
    };
    // A chain that is declared is made, or emptied.
    let mut text = format!("*mangle\n:{queue} - [0:0]\n:{write} - [0:0]\n{}", jumps(before, &chains));
    // Writing to a string does not fail.
    let to = format!("-j NFQUEUE --queue-num {}", steer.queue);
    match &steer.fail {
        Fail::Open => _ = writeln!(text, "-A {queue} {to} --queue-bypass"),
        Fail::Closed { except } => {
            // The exceptions of `--fail closed` pass while nobody listens, and are shaped
            // otherwise. Neighbour discovery has these types (RFC 4861 4).
            for kind in (133..=137).filter(|_| six) {
                let _ = writeln!(text, "-A {queue} -p ipv6-icmp -m icmp6 --icmpv6-type {kind} {to} --queue-bypass");
            }
            for port in except {
                for (protocol, end) in [("tcp", "sport"), ("tcp", "dport"), ("udp", "sport"), ("udp", "dport")] {
                    let _ = writeln!(text, "-A {queue} -p {protocol} -m {protocol} --{end} {port} {to} --queue-bypass");
                }
            }
            let _ = writeln!(text, "-A {queue} {to}");
        }
    }
    let _ = writeln!(text, "-A {write} -m mark --mark {0:#x}/{0:#x} -j TOS --or-tos 0x03", marks::CE);
    for dscp in &steer.dscp {
        let (bits, of_dscp) = (marks::dscp(*dscp), marks::DSCP | marks::VALUE);
        let _ = writeln!(text, "-A {write} -m mark --mark {bits:#x}/{of_dscp:#x} -j DSCP --set-dscp {dscp}");
    }
    let _ = writeln!(text, "-A {write} -j MARK --and-mark {:#x}", !marks::ALL);
    for hook in queued {
        let _ = writeln!(text, "-A {hook} {of} -j {queue}");
    }
    // Incoming packets must be written before another link queues them, because after a queue the
    // rest of the chain is skipped.
    let at = if steer.ingress { "-I" } else { "-A" };
    for hook in written {
        let _ = writeln!(text, "{at} {hook} {of} -m mark ! --mark 0x0/{:#x} -j {write}", marks::ALL);
    }
    text + "COMMIT\n"
}

/// A line if local packets may take another route when altq changes their mark: after a queue in
/// OUTPUT the kernel routes a packet again if its mark has changed (`nf_ip_reroute` in
/// net/netfilter/nfnetlink_queue.c).
pub fn reroutes(interface: &str) -> Option<String> {
    let rules = |family: &str| run("ip", &[family, "rule", "show"], "").unwrap_or_default();
    let rule = ["-4", "-6"].into_iter().find_map(|family| looks_at_marks(&rules(family)).map(str::to_owned))?;
    Some(format!(
        "the rule `{rule}` of `ip rule` uses bits of the mark that altq sets in local packets for {interface} when \
         it writes DSCP or ECN; give it a mask without {:#x}",
        marks::ALL
    ))
}

/// The first rule of `ip rule show` that uses altq's bits of the mark.
fn looks_at_marks(rules: &str) -> Option<&str> {
    let bits = |rule: &str| -> Option<u32> {
        let mut words = rule.split_whitespace().skip_while(|word| *word != "fwmark");
        let mark = words.nth(1)?;
        // Without a mask all bits count.
        let mask = mark.split_once('/').map_or("0xffffffff", |(_, mask)| mask);
        u32::from_str_radix(mask.trim_start_matches("0x"), 16).ok()
    };
    rules.lines().map(str::trim).find(|rule| bits(rule).is_some_and(|bits| bits & marks::ALL != 0))
}

/// A line if a rule of iptables makes packets bypass the other rules.
pub fn flow_offload() -> Vec<String> {
    let offloads = |(list, _): (&str, &str)| {
        run(list, &["-w", "5", "-S", "FORWARD"], "").is_ok_and(|rules| rules.contains("-j FLOWOFFLOAD"))
    };
    if !programs().any(offloads) {
        return Vec::new();
    }
    vec!["a rule with `-j FLOWOFFLOAD` carries forwarded packets past altq; switch flow offloading off".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steer(ingress: bool) -> Steer {
        let (interface, dscp, fail) = ("eth0".into(), vec![10], Fail::Open);
        Steer { interface, ingress, port: false, queue: 24000, dscp, fail }
    }

    /// As `iptables -t mangle -S` lists the rules that a killed process has left, among others.
    const LEFT: &str = "-P PREROUTING ACCEPT\n-P FORWARD ACCEPT\n\
        -N altq-out-eth0\n-N altq-out-eth0.w\n-N altq-out-eth01\n\
        -A FORWARD -o eth0 -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\n\
        -A FORWARD -o eth0 -j altq-out-eth0\n-A FORWARD -o eth01 -j altq-out-eth01\n\
        -A POSTROUTING -o eth0 -m mark ! --mark 0x0/0xff000000 -j altq-out-eth0.w\n\
        -A altq-out-eth0 -j NFQUEUE --queue-num 7 --queue-bypass\n";

    #[test]
    fn what_was_left_is_replaced_and_foreign_rules_stay() {
        let text = rules(&steer(false), LEFT, false);
        assert_eq!(
            text,
            "*mangle\n:altq-out-eth0 - [0:0]\n:altq-out-eth0.w - [0:0]\n\
             -D FORWARD -o eth0 -j altq-out-eth0\n\
             -D POSTROUTING -o eth0 -m mark ! --mark 0x0/0xff000000 -j altq-out-eth0.w\n\
             -A altq-out-eth0 -j NFQUEUE --queue-num 24000 --queue-bypass\n\
             -A altq-out-eth0.w -m mark --mark 0x80000000/0x80000000 -j TOS --or-tos 0x03\n\
             -A altq-out-eth0.w -m mark --mark 0x4a000000/0x7f000000 -j DSCP --set-dscp 10\n\
             -A altq-out-eth0.w -j MARK --and-mark 0xffffff\n\
             -A FORWARD -o eth0 -j altq-out-eth0\n-A OUTPUT -o eth0 -j altq-out-eth0\n\
             -A POSTROUTING -o eth0 -m mark ! --mark 0x0/0xff000000 -j altq-out-eth0.w\nCOMMIT\n"
        );
        assert_eq!(
            no_rules(&steer(false), LEFT),
            "*mangle\n-D FORWARD -o eth0 -j altq-out-eth0\n\
             -D POSTROUTING -o eth0 -m mark ! --mark 0x0/0xff000000 -j altq-out-eth0.w\n\
             -F altq-out-eth0\n-F altq-out-eth0.w\n-X altq-out-eth0\n-X altq-out-eth0.w\nCOMMIT\n"
        );
        assert_eq!(no_rules(&steer(true), LEFT), "");
    }

    #[test]
    fn what_comes_in_is_queued_before_routing() {
        let text = rules(&steer(true), "", false);
        for line in [
            "-A PREROUTING -i eth0 -j altq-in-eth0\n",
            // It comes before another link's rule hands the packet to its queue.
            "-I INPUT -i eth0 -m mark ! --mark 0x0/0xff000000 -j altq-in-eth0.w\n",
            "-I FORWARD -i eth0 -m mark ! --mark 0x0/0xff000000 -j altq-in-eth0.w\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn what_is_closed_has_exceptions_that_are_shaped_too() {
        let closed = Steer { fail: Fail::Closed { except: vec![22] }, ..steer(false) };
        let queued = |six: bool| -> Vec<String> {
            let text = rules(&closed, "", six);
            let lines = text.lines().filter_map(|line| line.strip_prefix("-A altq-out-eth0 "));
            lines.map(|line| line.replace("-j NFQUEUE --queue-num 24000", "Q")).collect()
        };
        let ports = ["tcp -m tcp --sport", "tcp -m tcp --dport", "udp -m udp --sport", "udp -m udp --dport"]
            .map(|which| format!("-p {which} 22 Q --queue-bypass"));
        assert_eq!(queued(false), [&ports[..], &["Q".to_owned()]].concat());
        let found = queued(true);
        assert_eq!(found.len(), 5 + 4 + 1);
        assert_eq!(found[2], "-p ipv6-icmp -m icmp6 --icmpv6-type 135 Q --queue-bypass");
        assert_eq!(found[9], "Q");
    }

    #[test]
    fn a_port_of_a_bridge_is_known_by_its_own_name() {
        let port = Steer { port: true, interface: "lan1".into(), ..steer(false) };
        let text = rules(&port, "", true);
        for line in [
            "-A FORWARD -m physdev --physdev-is-bridged --physdev-out lan1 -j altq-out-lan1\n",
            "-A POSTROUTING -m physdev --physdev-is-bridged --physdev-out lan1 -m mark ! --mark 0x0/0xff000000 \
             -j altq-out-lan1.w\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("OUTPUT"), "{text}");
        let text = rules(&Steer { ingress: true, ..port }, "", false);
        assert!(text.contains("-A PREROUTING -m physdev --physdev-in lan1 -j altq-in-lan1\n"), "{text}");
    }

    /// The kernel's limit is 28 characters (XT_EXTENSION_MAXNAMELEN is 29, including the final 0),
    /// and an interface's name has up to 15 (IFNAMSIZ is 16).
    #[test]
    fn names_of_chains_are_short_enough() {
        for ingress in [false, true] {
            let names = chains(&Steer { interface: "fifteen-letters".into(), ..steer(ingress) });
            assert!(names.iter().all(|name| name.len() <= 28), "{names:?}");
        }
        let wide = Steer { interface: "eth+".into(), ..steer(false) };
        assert!(set(&wide).unwrap_err().contains("all interfaces"));
    }

    #[test]
    fn rules_that_look_at_the_marks_bits_are_found() {
        // As iproute2 prints them; the third is wg-quick's.
        for (rules, found) in [
            ("0:\tfrom all lookup local\n32766:\tfrom all lookup main\n", None),
            ("0:\tfrom all lookup local\n100:\tfrom all fwmark 0x1/0xffff lookup 7\n", None),
            ("1:\tfrom all lookup 5\n2:\tnot from all fwmark 0xca6c lookup 6\n", Some("2:")),
            ("9:\tfrom all fwmark 0x1000000/0x3000000 lookup 8\n", Some("9:")),
            ("9:\tfrom all fwmark\n10:\tfrom all fwmark x/y lookup 8\n", None),
        ] {
            let number = looks_at_marks(rules).and_then(|rule| rule.split_whitespace().next());
            assert_eq!(number, found);
        }
    }
}
