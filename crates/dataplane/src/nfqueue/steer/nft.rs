//! The rules in nftables: a table for each link.

use std::fmt::Write;

use super::super::marks;
use super::program::{is_absent, run};
use super::{Fail, Steer};

/// The priority of the hook that queues what leaves: before source NAT, and after what other rules
/// usually write (mangle, -150), so that altq's rules and queues see the hosts inside the NAT. On
/// ingress packets are queued after destination NAT (-100), which undoes source NAT for answers.
pub const EGRESS: i32 = -140;
pub const INGRESS: i32 = -90;
/// The marks are read directly after the queue.
const BEHIND: i32 = 5;

/// Tries the `queue` statement in a chain without a hook, and leaves nothing. A kernel without the
/// statement would refuse the rules themselves as well, but then it would remove hooks that it has
/// set up already, and with each one drop what waits in the queues of other links
/// (`__nf_unregister_net_hook` in net/netfilter/core.c).
fn question(steer: &Steer) -> String {
    let table = format!("{} altq-ask", family(steer));
    format!("add table {table}\nadd chain {table} ask\nadd rule {table} ask queue num 0 bypass\ndelete table {table}\n")
}

/// Puts the rules in place, or replaces them.
pub fn set(steer: &Steer) -> Result<(), String> {
    run("nft", &["-f", "-"], &question(steer))?;
    run("nft", &["-f", "-"], &rules(steer)).map(drop)
}

/// Takes the rules away. Nothing happens if there are none.
pub fn remove(steer: &Steer) -> Result<(), String> {
    run("nft", &["-f", "-"], &no_rules(steer)).map(drop)
}

/// True if the rules are there.
pub fn is_there(steer: &Steer) -> bool {
    listed(steer).is_ok()
}

/// Removes the rules, if there are any, where it is not known whether there is nft.
///
/// # Errors
/// What nft says if it does not remove rules, or does not tell whether there are any.
pub fn clear(steer: &Steer) -> Result<(), String> {
    match listed(steer) {
        Ok(_) => remove(steer),
        Err(said) if is_absent(&said) => Ok(()),
        Err(said) => Err(said),
    }
}

fn listed(steer: &Steer) -> Result<String, String> {
    let table = table(steer);
    let words: Vec<&str> = ["list", "table"].into_iter().chain(table.split(' ')).collect();
    run("nft", &words, "")
}

/// The family of a link's table.
fn family(steer: &Steer) -> &'static str {
    if steer.port { "bridge" } else { "inet" }
}

/// The family and the name of a link's table.
pub fn table(steer: &Steer) -> String {
    let mut name = format!("{} altq-{}-", family(steer), steer.direction());
    for c in steer.interface.chars() {
        match c {
            '+' | '@' => _ = write!(name, "_{:02x}", c as u32),
            c => name.push(c),
        }
    }
    name
}

/// `add` comes first so that there is something to delete. The whole file is one transaction.
fn no_rules(steer: &Steer) -> String {
    let table = table(steer);
    format!("add table {table}\ndelete table {table}\n")
}

fn rules(steer: &Steer) -> String {
    let (hook, at, word) =
        if steer.ingress { ("prerouting", INGRESS, "iifname") } else { ("postrouting", EGRESS, "oifname") };
    let (table, interface) = (table(steer), &steer.interface);
    let (all, ce, of_dscp) = (marks::ALL, marks::CE, marks::DSCP | marks::VALUE);
    let mut text = no_rules(steer);
    // Writing to a string does not fail.
    let _ = writeln!(text, "table {table} {{\n chain write {{");
    for family in ["ip", "ip6"] {
        let _ = writeln!(text, "  meta mark & {ce:#x} == {ce:#x} {family} ecn set ce");
        for dscp in &steer.dscp {
            let bits = marks::dscp(*dscp);
            let _ = writeln!(text, "  meta mark & {of_dscp:#x} == {bits:#x} {family} dscp set {dscp}");
        }
    }
    let _ = writeln!(
        text,
        "  meta mark set meta mark & {:#x}\n }}\n chain hold {{\n  \
         type filter hook {hook} priority {at}; policy accept;\n{}}}\n chain behind {{\n  \
         type filter hook {hook} priority {}; policy accept;\n  \
         {word} \"{interface}\" meta mark & {all:#x} != 0 jump write\n }}\n}}",
        !all,
        hold(steer, word),
        at + BEHIND,
    );
    text
}

/// Neighbour discovery (RFC 4861 4), in nft's words.
const DISCOVERY: [&str; 5] =
    ["nd-router-solicit", "nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert", "nd-redirect"];

/// The rules that hand packets over. Exceptions of `--fail closed` are handed over with `bypass`:
/// they pass while nobody listens, and are shaped otherwise.
fn hold(steer: &Steer, word: &str) -> String {
    let (interface, queue) = (&steer.interface, steer.queue);
    // A bridge has frames of all kinds.
    let only = if steer.port { " meta protocol != arp" } else { "" };
    let Fail::Closed { except } = &steer.fail else {
        return format!("  {word} \"{interface}\"{only} queue num {queue} bypass\n ");
    };
    let mut text = String::new();
    // Writing to a string does not fail.
    for kind in DISCOVERY {
        let _ = writeln!(text, "  {word} \"{interface}\" icmpv6 type {kind} queue num {queue} bypass");
    }
    for port in except {
        for which in ["tcp sport", "tcp dport", "udp sport", "udp dport"] {
            let _ = writeln!(text, "  {word} \"{interface}\" {which} {port} queue num {queue} bypass");
        }
    }
    text + &format!("  {word} \"{interface}\"{only} queue num {queue}\n ")
}

/// A line for each flow table that has the interface, or a device that carries its packets.
pub fn flow_tables(interface: &str) -> Vec<String> {
    match run("nft", &["list", "flowtables"], "") {
        Ok(text) => past(&text, interface),
        Err(_) => Vec::new(),
    }
}

/// The same, of what nft has listed.
pub fn past(text: &str, interface: &str) -> Vec<String> {
    if !text.contains("flowtable ") {
        return Vec::new();
    }
    let links = run("ip", &["-o", "link", "show"], "").unwrap_or_default();
    find_flow_tables(text, interface, &carriers(&links, interface))
}

/// An interface and the devices that carry its packets, as `ip -o link` lists them: the device
/// below a VLAN, the ports of a bridge. Flow tables have these.
fn carriers<'a>(links: &'a str, interface: &'a str) -> Vec<&'a str> {
    let mut found = vec![interface];
    let mut at = 0;
    while let Some(upper) = found.get(at).copied() {
        at += 1;
        for line in links.lines() {
            // `5: eth0.7@eth0: <BROADCAST,UP> mtu 1500 qdisc noqueue master br0 state UP …`
            let mut words = line.split_whitespace();
            let Some(name) = words.nth(1).map(|name| name.trim_end_matches(':')) else { continue };
            let (name, below) = name.split_once('@').map_or((name, None), |(name, below)| (name, Some(below)));
            let master = words.skip_while(|word| *word != "master").nth(1);
            let carrier = if name == upper { below } else { master.filter(|master| *master == upper).map(|_| name) };
            if let Some(carrier) = carrier
                && !found.contains(&carrier)
            {
                found.push(carrier);
            }
        }
    }
    found
}

/// The lines about flow tables in what nft has listed that have one of the devices.
fn find_flow_tables(text: &str, interface: &str, devices: &[&str]) -> Vec<String> {
    // Nobody tells which device carries a PPPoE session, so any may.
    let any = interface.starts_with("ppp");
    let (mut table, mut name, mut found) = ("", "", Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.trim_end_matches(" {");
        } else if let Some(rest) = line.strip_prefix("flowtable ") {
            name = rest.trim_end_matches(" {");
        } else if line.starts_with("devices") {
            let words = line.split(|c: char| c.is_whitespace() || "{},=\"".contains(c));
            let mut words = words.filter(|word| !word.is_empty()).skip(1);
            if let Some(device) = words.find(|word| any || devices.contains(word)) {
                found.push(format!(
                    "the flow table `{name}` (table {table}) carries packets of {interface} past the firewall's rules, \
                     and so past altq; take {device} out of it, or switch flow offloading off"
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steer(ingress: bool) -> Steer {
        let (interface, dscp, fail) = ("eth0.5".into(), vec![10], Fail::Open);
        Steer { interface, ingress, port: false, queue: 24000, dscp, fail }
    }

    #[test]
    fn a_table_replaces_the_one_before_it() {
        let text = rules(&steer(false));
        assert!(text.starts_with(
            "add table inet altq-out-eth0.5\ndelete table inet altq-out-eth0.5\ntable inet altq-out-eth0.5 {\n"
        ));
        for line in [
            "  meta mark & 0x80000000 == 0x80000000 ip6 ecn set ce\n",
            "  meta mark & 0x7f000000 == 0x4a000000 ip dscp set 10\n",
            "  meta mark set meta mark & 0xffffff\n",
            "  type filter hook postrouting priority -140; policy accept;\n  oifname \"eth0.5\" queue num 24000 \
             bypass\n",
            "  type filter hook postrouting priority -135; policy accept;\n  oifname \"eth0.5\" \
             meta mark & 0xff000000 != 0 \
             jump write\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(
            rules(&steer(true)).contains("hook prerouting priority -90; policy accept;\n  iifname \"eth0.5\" queue")
        );
        let port = Steer { port: true, interface: "a+b".into(), ..steer(true) };
        assert!(no_rules(&port).contains("delete table bridge altq-in-a_2bb\n"));
        assert!(rules(&port).contains("  iifname \"a+b\" meta protocol != arp queue num 24000 bypass\n"));
    }

    #[test]
    fn what_is_closed_has_exceptions_that_are_shaped_too() {
        let closed = Steer { fail: Fail::Closed { except: vec![22, 53] }, ..steer(false) };
        let text = rules(&closed);
        for line in [
            "  oifname \"eth0.5\" icmpv6 type nd-neighbor-solicit queue num 24000 bypass\n",
            "  oifname \"eth0.5\" tcp sport 22 queue num 24000 bypass\n",
            "  oifname \"eth0.5\" udp dport 53 queue num 24000 bypass\n",
            "  oifname \"eth0.5\" queue num 24000\n }\n chain behind {\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("queue num").count(), 5 + 2 * 4 + 1);
        let port = Steer { port: true, ..closed };
        assert!(rules(&port).contains("  oifname \"eth0.5\" meta protocol != arp queue num 24000\n"));
    }

    #[test]
    fn flow_tables_are_found_by_their_devices() {
        // As nft 1.0 prints them.
        let text = "table inet fw4 {\n\tflowtable ft {\n\t\thook ingress priority \
         filter\n\t\tdevices = { eth0, \"lan1\" }\n\
                    \t\tflags offload\n\t}\n}\ntable ip other {\n\tflowtable g {\n\t\thook ingress priority 0\n\t\t\
                    devices = { eth01 }\n\t}\n}\n";
        let of = |interface: &str| find_flow_tables(text, interface, &[interface]);
        let found = of("eth0");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`ft` (table inet fw4)"), "{found:?}");
        assert_eq!((of("lan1").len(), of("eth").len()), (1, 0));
        // A VLAN, and a bridge with the VLAN as a port, as iproute2's `ip -o link` prints them.
        let links = "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT\n\
                     5: eth0.7@eth0: <BROADCAST,UP> mtu 1500 qdisc noqueue master br0 state UP mode DEFAULT\n\
                     6: br0: <BROADCAST,UP> mtu 1500 qdisc noqueue state UP mode DEFAULT\n";
        assert_eq!(carriers(links, "br0"), ["br0", "eth0.7", "eth0"]);
        assert_eq!(carriers(links, "eth0"), ["eth0"]);
        let found = find_flow_tables(text, "br0", &carriers(links, "br0"));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("packets of br0") && found[0].contains("take eth0 out"), "{found:?}");
        assert_eq!(of("pppoe-wan").len(), 2);
    }
}
