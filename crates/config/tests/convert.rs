//! The policy that `altq convert` prints has the same meaning as the one that it read.

use altq_config::{Language, Link, Policy, parse_str, print};
use altq_engine::classify::{Classifier, Field, Order, Rule, Values};
use altq_engine::headers::Key;
use altq_engine::random::SplitMix64;
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassSpec, LinkSpec};

/// Random numbers, the same on every machine.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

fn parse(text: &str, language: Language) -> Policy {
    parse_str(text, "t", language).unwrap_or_else(|failed| panic!("{failed}\n{text}"))
}

/// A random native policy, as text.
fn native(random: &mut Random) -> String {
    let mut out = String::from("set offices { 10.1.0.0/16 10.2.0.7 2001:db8:1::/48 }\nset all { offices 0.0.0.0/0 }\n");
    for link in 0..1 + random.below(2) {
        let classic = random.chance(40);
        out += &format!("link l{link} {{\n");
        if random.chance(50) {
            out += &[
                format!("device eth{link}\n"),
                format!("device eth{link} ingress\n"),
                format!("device bridge a{link} b\n"),
            ][random.below(3) as usize];
        }
        let rate = 1000 + random.below(1_000_000);
        let adapts = if random.chance(30) && !classic {
            let target = random.one(&["", "target 15ms", "target 1500us"]);
            let bounds = format!("from {}kbit/s to {}kbit/s", rate / 2, 2 * rate);
            format!("adapt {{ {bounds} {target} reflectors {{ 9.9.9.9 2620:fe::9 }} }}")
        } else {
            String::new()
        };
        out += &format!("rate {rate}kbit/s {adapts}\n");
        out += random.one(&["", "mtu 9000\n", "mtu 576\n"]);
        out += random.one(&[
            "",
            "overhead ethernet\n",
            "overhead -4 bytes\n",
            "overhead 44 bytes atm mpu 96\n",
            "overhead pppoe-ptm ether-vlan\n",
        ]);
        // A rate that adapts needs a regulator.
        let none = if adapts.is_empty() { "regulator none\n" } else { "" };
        out += random.one(&["", none, "regulator auto\n", "regulator altq\n", "regulator 12000bytes\n"]);
        out += random.one(&["", "overcommit\n"]);
        out += if classic {
            random.one(&[
                "scheduler cbq { estimator classic }\n",
                "scheduler cbq { estimator classic rounds prr link-sharing ancestor-only }\n",
                "scheduler cbq { efficient estimator classic link-sharing formal }\n",
            ])
        } else {
            random.one(&[
                "scheduler cbq\n",
                "scheduler cbq { excess priority }\n",
                "scheduler cbq { estimator exact link-sharing formal }\n",
            ])
        };
        let mut names = Vec::new();
        let tops = 1 + random.below(4);
        for top in 0..tops {
            class(random, &mut out, &mut names, classic, 100 / tops, 1);
            if top == 0 {
                out += random.one(&["queue drop_tail { limit 7packets }\n", "queue drop_head\n", ""]);
            }
        }
        let default = names[random.below(names.len() as u64) as usize].clone();
        out = out.replacen(&format!("class {default} {{"), &format!("class {default} {{ default"), 1);
        for _ in 0..random.below(8) {
            let to = names[random.below(names.len() as u64) as usize].clone();
            out += &format!("match {} -> {to}\n", conditions(random));
        }
        out += "}\n";
    }
    out
}

fn class(random: &mut Random, out: &mut String, names: &mut Vec<String>, classic: bool, share: u64, depth: u32) {
    let name = format!("c{}.{}", names.len(), random.one(&["x", "y-z", "Q_1"]));
    *out += &format!("class {name} {{ ");
    names.push(name);
    *out += &format!("share {}.{}% ", share.saturating_sub(1), random.below(10));
    let borrow = random.chance(60);
    if borrow {
        *out += "borrow ";
    }
    if random.chance(40) {
        *out += &format!("priority {} ", random.below(8));
    }
    if random.chance(30) {
        *out += &format!("packetsize {} maxburst {} ", 40 + random.below(500), 1 + random.below(20));
    }
    if classic && random.chance(30) {
        *out += &format!("minburst {} ", 1 + random.below(4));
        *out += random.one(&["maxdelay 50ms ", "maxdelay 1s ", "queue drop_head { limit 9packets } "]);
    } else if random.chance(30) {
        *out += random.one(&["queue drop_tail { limit 20packets } ", "queue drop_head { limit 64000bytes } "]);
    }
    if !classic && borrow && random.chance(30) {
        *out += "ceiling 100% ";
    }
    if depth < 4 && random.chance(40) {
        if random.chance(20) {
            *out += "scheduler fifo ";
            let name = format!("f{}", names.len());
            *out += &format!("class {name} {{ }} ");
            names.push(name);
        } else {
            for _ in 0..1 + random.below(2) {
                class(random, out, names, classic, share / 3, depth + 1);
            }
        }
    }
    *out += "}\n";
}

fn conditions(random: &mut Random) -> String {
    let mut keys = Vec::new();
    let choices: &[(&str, &[&str])] = &[
        ("src", &["offices", "10.1.0.0/16,!10.1.7.0/24", "!all", "10.0.0.5/255.0.0.255"]),
        ("dst", &["192.0.2.1,192.0.2.64/26", "!192.0.2.1", "0.0.0.0/0"]),
        ("host", &["192.0.2.1", "!192.0.2.1"]),
        ("sport", &["1024-65535", "53,123"]),
        ("dport", &["http,https", "80-90,!85", "!22"]),
        ("port", &["domain"]),
        ("proto", &["tcp", "udp,17,200"]),
        ("dscp", &["ef,va", "af41", "1-7"]),
        ("ecn", &["ce", "ect0,ect1"]),
        ("tos", &["0xb8", "0xb8/0xfc"]),
        ("tcp-flags", &["syn", "syn/syn+ack", "!rst"]),
        ("length", &["0-128bytes", "1500"]),
        ("mark", &["7", "0x10/0xf0", "1-9"]),
        ("vlan", &["5,10-20"]),
        ("interface", &["eth0,eth1", "!lan"]),
        ("family", &["ipv4"]),
        ("spi", &["256"]),
        ("flow-label", &["1-9"]),
    ];
    for (key, values) in choices {
        if random.chance(15) {
            keys.push(format!("{key} {}", random.one(values)));
        }
    }
    if keys.is_empty() { "all".to_owned() } else { keys.join(" ") }
}

type Parts<'a> = (u64, u32, String, Vec<(u32, &'a Settings, String)>);

fn parts(spec: &LinkSpec) -> Parts<'_> {
    let class = |class: &ClassSpec| format!("{:?} {:?}", class.queue, class.scheduler);
    (
        spec.rate.as_bit_s(),
        spec.mtu,
        format!("{:?} {:?} {:?} {:?} {:?}", spec.overhead, spec.regulator, spec.timer, spec.scheduler, spec.default),
        spec.classes.iter().map(|c| (c.parent, &c.settings, class(c))).collect(),
    )
}

fn same(a: &Link, b: &Link, text: &str) {
    assert_eq!((&a.name, &a.device, &a.adapt), (&b.name, &b.device, &b.adapt), "{text}");
    assert_eq!(a.overcommit, b.overcommit, "{text}");
    assert_eq!(parts(&a.spec), parts(&b.spec), "{text}");
}

#[test]
fn native_policies_come_back_as_they_are() {
    let mut random = Random(SplitMix64::new(1));
    let mut rules = 0;
    let mut read = 0;
    for _ in 0..400 {
        let text = native(&mut random);
        // A random policy may be refused, for example because a rule matches nothing or a rate is
        // too low. Such a policy is skipped.
        let Ok(policy) = parse_str(&text, "t", Language::Native) else { continue };
        read += 1;
        let printed = print(&policy);
        assert!(printed.left_out.is_empty(), "{:?}\n{text}", printed.left_out);
        let again = parse(&printed.text, Language::Native);
        assert_eq!(policy.links.len(), again.links.len());
        for (a, b) in policy.links.iter().zip(&again.links) {
            same(a, b, &printed.text);
            assert_eq!(a.spec.rules, b.spec.rules, "{text}\n{}", printed.text);
            rules += a.spec.rules.rules.len();
            let names = |link: &Link| link.classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(a), names(b));
        }
        // Printed, read and printed again, the text is the same.
        assert_eq!(printed.text, print(&again).text);
    }
    assert!(read > 300 && rules > 500, "{read} policies, {rules} rules");
}

/// Policies with words that consist of two words, percentages of what remains, and words that
/// follow others.
#[test]
fn classes_of_wfq_come_back() {
    let text = "link l { rate 10Mbit/s scheduler wfq { excess equal }
        class v { low-latency 1Mbit/s burst 9000 level 2  police 2Mbit/s burst 3000bytes }
        class w { low-latency burst 9000 low-latency 10% }
        class a { bandwidth remaining 33.3% shape 5Mbit/s scheduler wfq  class c { weight 3 } class d { weight 4 } }
        class b { bandwidth remaining 66.7% fair-queue default } }";
    let policy = parse(text, Language::Native);
    let settings = |name: &str| &policy.links[0].spec.classes[policy.links[0].class(name).unwrap() as usize].settings;
    assert_eq!(settings("v").bytes("low-latency burst"), Some(9000));
    assert_eq!(
        (settings("v").bytes("police burst"), settings("w").bytes("low-latency burst")),
        (Some(3000), Some(9000))
    );
    assert_eq!(
        (settings("a").percent("bandwidth remaining"), settings("a").rate("bandwidth")),
        (Some(333_000_000), None)
    );
    let printed = print(&policy);
    for part in
        ["scheduler wfq { excess equal }", "police burst 3000", "bandwidth remaining 33.3%", "fair-queue  default"]
    {
        assert!(printed.text.contains(part), "{part} is not in {}", printed.text);
    }
    let again = parse(&printed.text, Language::Native);
    same(&policy.links[0], &again.links[0], &printed.text);
    assert_eq!(printed.text, print(&again).text);
}

/// A random altq.conf: classes, and filters that may overlap.
fn altq_conf(random: &mut Random) -> String {
    let mut out = String::from("interface em0 bandwidth 10M cbq\nclass cbq em0 root_class NULL pbandwidth 100\n");
    out += "class cbq em0 def_class root_class borrow pbandwidth 20 default\n";
    let classes = 2 + random.below(4);
    for class in 0..classes {
        out +=
            &format!("class cbq em0 c{class} root_class pbandwidth {} priority {}", random.below(15), random.below(8));
        out += random.one(&[
            "",
            " borrow",
            " borrow root_class",
            " maxburst 8",
            " minburst 4 packetsize 200",
            " maxdelay 60",
            " red",
            " rio maxdelay 60",
            " ecn",
        ]);
        out += "\n";
    }
    for _ in 0..2 + random.below(10) {
        let dst =
            random.one(&["0", "10.0.0.1", "10.0.0.2", "10.0.0.0 netmask 255.255.255.0", "10.0.0.1 netmask 0xff0000ff"]);
        let src = random.one(&["0", "192.0.2.1", "192.0.2.0 netmask 255.255.255.0"]);
        let ruleno = if random.chance(40) { format!("ruleno {} ", random.below(4)) } else { String::new() };
        out += &format!(
            "filter em0 c{} {ruleno}{dst} {} {src} {} {}{}\n",
            random.below(classes),
            random.one(&["0", "80", "53"]),
            random.one(&["0", "1000"]),
            random.one(&["0", "6", "17"]),
            random.one(&["", " tos 0xb8 tosmask 0xfc", " dontwarn"]),
        );
    }
    for _ in 0..random.below(4) {
        let dst = random.one(&["0", "2001:db8::1", "2001:db8::/32"]);
        let rest = random.one(&["", " flowlabel 5", " tclass 0xb8"]);
        out += &format!("filter6 em0 c{} {dst} 0 0 0 {}{rest}\n", random.below(classes), random.one(&["0", "17"]));
    }
    out
}

/// The class of a packet, found by the rules of docs/reference/altq.md 10.1 without the engine:
/// filters with a full destination address (IPv6: with a flow label) first, then the larger ruleno,
/// then the later line.
fn by_the_book(link: &Link, key: &Key) -> Option<u32> {
    let hashed = |rule: &Rule| {
        rule.terms.iter().any(|term| match (&term.values, term.field) {
            (Values::Addresses(list), Field::Dst) => list.iter().all(|a| !a.v6 && a.mask == u128::from(u32::MAX)),
            (_, Field::FlowLabel) => true,
            _ => false,
        })
    };
    let best = link
        .spec
        .rules
        .rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| matches(rule, key))
        .max_by_key(|(line, rule)| (hashed(rule), rule.number, *line));
    best.map(|(_, rule)| rule.class).or(link.spec.default)
}

fn matches(rule: &Rule, key: &Key) -> bool {
    rule.terms.iter().all(|term| {
        let number = match term.field {
            Field::SrcPort => key.sport().map(u32::from),
            Field::DstPort => key.dport().map(u32::from),
            Field::Proto => Some(u32::from(key.proto)),
            Field::Tos => Some(u32::from(key.tos)),
            Field::Family => Some(u32::from(key.family)),
            Field::FlowLabel => (key.family == 6).then_some(key.flow_label),
            _ => None,
        };
        match &term.values {
            Values::Addresses(list) => {
                let address = if term.field == Field::Src { key.src } else { key.dst };
                list.iter().any(|a| a.v6 == (key.family == 6) && address & a.mask == a.bits)
            }
            Values::Ranges(list) => number.is_some_and(|n| list.iter().any(|(from, to)| (*from..=*to).contains(&n))),
            Values::Masked(list) => number.is_some_and(|n| list.iter().any(|(value, mask)| n & mask == *value)),
        }
    })
}

fn packet(random: &mut Random) -> Key {
    let proto = [1u8, 2, 6, 17, 46, 58][random.below(6) as usize];
    let ports = matches!(proto, 6 | 17);
    let port = |random: &mut Random| [80u16, 53, 1000, 9][random.below(4) as usize];
    let v6 = random.chance(25);
    let base: u128 = if v6 { 0x2001_0db8 << 96 } else { 0x0a00_0000 };
    let src: u128 = if v6 { 1 } else { 0xc000_0200 };
    let (sport, dport) = (ports.then(|| port(random)), ports.then(|| port(random)));
    let key = Key {
        src: src + u128::from(random.below(3)),
        dst: base + u128::from(random.below(3)),
        proto,
        family: if v6 { 6 } else { 4 },
        tos: [0u8, 0xb8, 0xb9][random.below(3) as usize],
        flow_label: if v6 { random.below(2) as u32 * 5 } else { 0 },
        length: 100,
        ..Key::default()
    };
    key.with_sport(sport).with_dport(dport)
}

#[test]
fn altq_conf_means_the_same_in_the_native_language() {
    let mut random = Random(SplitMix64::new(2));
    let mut read = 0;
    let mut by_rule = 0;
    for _ in 0..400 {
        let mut text = altq_conf(&mut random);
        // Lines that altqd would refuse are removed, one by one.
        let policy = loop {
            match parse_str(&text, "altq.conf", Language::Altq) {
                Ok(policy) => break policy,
                Err(failed) => {
                    let (line, _) = failed.sources.line_column(
                        failed.diagnostics.iter().find(|d| d.severity == altq_config::Severity::Error).unwrap().span,
                    );
                    text = text
                        .lines()
                        .enumerate()
                        .filter(|(at, _)| at + 1 != line)
                        .map(|(_, line)| format!("{line}\n"))
                        .collect();
                }
            }
        };
        read += 1;
        let link = &policy.links[0];
        assert_eq!(link.spec.rules.order, Order::Altq);
        let printed = print(&policy);
        assert_eq!(printed.left_out.len(), 1, "{:?}", printed.left_out);
        assert!(printed.left_out[0].contains("root_class"));
        let again = parse(&printed.text, Language::Native);
        same(link, &again.links[0], &printed.text);
        assert_eq!(again.links[0].spec.rules.order, Order::First);
        let mut altq = Classifier::new(&link.spec.rules, link.spec.default);
        let mut native = Classifier::new(&again.links[0].spec.rules, again.links[0].spec.default);
        for _ in 0..300 {
            let key = packet(&mut random);
            let expected = by_the_book(link, &key);
            assert_eq!(altq.classify(&key), expected, "{key:?}\n{text}");
            assert_eq!(native.classify(&key), expected, "{key:?}\n{text}\n{}", printed.text);
            by_rule += usize::from(expected != link.spec.default);
        }
    }
    assert!(read == 400 && by_rule > 10_000, "{read} files, {by_rule} packets");
}

/// ALTQ serves classes in the order in which they were made. If they are printed in another order,
/// `left_out` says so.
#[test]
fn what_nesting_cannot_say_is_listed() {
    let file = |tail: &str| {
        format!(
            "interface em0 bandwidth 10M cbq\nclass cbq em0 em0 NULL pbandwidth 100\n\
             class cbq em0 def em0 pbandwidth 20 default\n\
             class cbq em0 a em0 pbandwidth 40\nclass cbq em0 b em0 pbandwidth 20\n\
             class cbq em0 c a pbandwidth 10 {tail}\n"
        )
    };
    let left_out = |tail: &str| print(&parse(&file(tail), Language::Altq)).left_out;
    assert_eq!(left_out("priority 3"), Vec::<String>::new());
    let said = left_out("");
    assert!(said.len() == 1 && said[0].contains("`b` and `c`"), "{said:?}");
}
