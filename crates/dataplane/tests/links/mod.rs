//! Links for the kernel to execute: those written in this file, those of the repository's examples
//! and cases, and random ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use altq_config::{Device, Language, Link, parse_str};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Policies that use every scheduler, queue and kind of rule that the kernel has.
pub const POLICIES: &[(&str, &str)] = &[
    (
        "htb",
        "link wan { device eth0  rate 10Mbit/s  scheduler htb
            class a { rate 2Mbit/s  prio 0  queue drop_tail { limit 20packets } }
            class b { rate 5Mbit/s  ceil 10Mbit/s  prio 1
                class c { rate 3Mbit/s  ceil 10Mbit/s  queue drop_tail { limit 30000bytes } }
                class d { rate 2Mbit/s  ceil 8Mbit/s  burst 5000  cburst 6000  quantum 2000  default } }
            class e { rate 12kbit/s  queue drop_head { limit 9packets } } }",
    ),
    (
        "htb beyond 32 bits of bytes a second",
        "link wan { device eth0  rate 40Gbit/s  overhead ethernet  scheduler htb
            class a { rate 10Gbit/s  ceil 40Gbit/s }  class b { rate 30Gbit/s  default } }",
    ),
    (
        "drr and codel",
        "link wan { device eth0  rate 10Mbit/s  overhead bridged-llcsnap  scheduler drr
            class a { quantum 3000  queue codel { target 7ms  interval 150ms  ecn } }
            class b { default  queue fq_codel { limit 500packets  flows 256  quantum 300 } }
            match dport 80 -> a }",
    ),
    (
        "priq",
        "link wan { device eth0  rate 10Mbit/s  scheduler priq
            class a { priority 9  queue pie { target 20ms  ecn } }
            class b { priority 3  queue sfq { perturb 10s  flows 200  headdrop } }
            class c { priority 1  default  queue red { limit 90000bytes  min 9000bytes  max 30000bytes  ecn } }
            match dscp ef -> a  match mark 0x10/0xf0 -> b  match mark 0x20/0xf0 proto udp -> b }",
    ),
    (
        "hfsc",
        "link wan { device eth0  rate 10Mbit/s  scheduler hfsc
            class a { realtime 2Mbit/s for 5ms then 1Mbit/s  linkshare 1Mbit/s }
            class b { linkshare 9Mbit/s
                class c { linkshare 6Mbit/s  upperlimit 8Mbit/s  scheduler drr
                    class x { quantum 1514 }  class y { default } }
                class d { linkshare 3Mbit/s  queue cake { dual-srchost  rtt 50ms } } }
            match src 2001:db8::/32 dst !2001:db8:1::/48 -> a
            match length 0-120 -> a
            match vlan 5 proto tcp tcp-flags syn/syn+ack -> d
            match sport 1000-1999 -> x }",
    ),
    (
        "cake alone",
        "link wan { device eth0  rate 10Mbit/s  overhead pppoe-ptm  scheduler fifo
            class all { default  queue cake { flows  rtt 30ms } } }",
    ),
    (
        "wfq",
        "link wan { device eth0  rate 10Mbit/s  scheduler wfq
            class a { bandwidth 2Mbit/s  fair-queue }  class b { bandwidth 6Mbit/s  default } }",
    ),
    (
        "what comes in",
        "link wan { device eth0 ingress  rate 10Mbit/s  scheduler htb
            class a { rate 1Mbit/s }  class b { rate 9Mbit/s  default }  match proto udp -> a }",
    ),
];

/// Reads the link of a policy, on `eth0`.
pub fn link(text: &str) -> Link {
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}\n{text}"));
    policy.links.into_iter().next().unwrap()
}

/// All files below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.append(&mut files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The links of the native policies in `examples` and `cases`, each put on `eth0`, with the file
/// that it comes from.
pub fn of_the_repository() -> Vec<(String, Link)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for file in ["examples", "cases"].iter().flat_map(|folder| files(&root.join(folder))) {
        let kind = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        // A case has its policy as a string of several lines.
        let text = match kind {
            "altq" => text,
            "toml" => match text.split_once("policy = \"\"\"").and_then(|(_, rest)| rest.split_once("\"\"\"")) {
                Some((policy, _)) => policy.to_owned(),
                None => continue,
            },
            _ => continue,
        };
        // Some are in the language of altq.conf.
        let Ok(policy) = parse_str(&text, "test.altq", Language::Native) else { continue };
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        for mut link in policy.links {
            link.device = Some(Device::Interface { name: "eth0".to_owned(), ingress: false });
            found.push((format!("{name}, link {}", link.name), link));
        }
    }
    found
}

/// A random link, made from a seed: nested classes of a scheduler that the kernel has, with queues
/// and rules.
pub fn made_up(seed: u64) -> Link {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut of = |n: u32| random.next_u32() % n;
    let overhead = ["", "overhead ethernet", "overhead 4 bytes", "overhead pppoe-llcsnap"][of(4) as usize];
    let kind = of(4);
    let scheduler = ["htb", "hfsc", "drr", "priq"][kind as usize];
    let mut text = format!("link wan {{ device eth0  rate 100Mbit/s  {overhead}  scheduler {scheduler}\n");
    let count = 2 + of(9);
    for n in 0..count {
        let words = |of: &mut dyn FnMut(u32) -> u32, most: u32| match kind {
            0 => {
                let rate = 64 + of(most);
                format!("rate {rate}kbit/s  ceil {}kbit/s  prio {}", rate + of(50_000), of(8))
            }
            1 => match of(3) {
                0 => format!("linkshare {}kbit/s", 64 + of(most)),
                1 => format!("realtime {}kbit/s for {}ms then {}kbit/s", 64 + of(most), 1 + of(50), 64 + of(most)),
                _ => format!("linkshare {}kbit/s  upperlimit {}kbit/s", 64 + of(most), 1000 + of(90_000)),
            },
            2 => format!("quantum {}", 1600 + of(20_000)),
            _ => format!("priority {n}"),
        };
        let queue = match of(7) {
            0 => format!("queue drop_tail {{ limit {}packets }}", 1 + of(2000)),
            1 => format!("queue drop_tail {{ limit {}bytes }}", 3000 + of(500_000)),
            2 => format!("queue drop_head {{ limit {}packets }}", 1 + of(2000)),
            3 => format!("queue codel {{ target {}us  interval {}ms }}", 1000 + of(20_000), 20 + of(300)),
            4 => format!("queue fq_codel {{ flows {}  limit {}packets  ecn }}", 1 + of(4096), 10 + of(10_000)),
            5 => format!("queue sfq {{ limit {}packets  perturb {}s }}", 2 + of(500), of(20)),
            _ => String::new(),
        };
        let default = if n == 0 { "default" } else { "" };
        // Classes below classes, where the scheduler has them.
        if n > 0 && kind < 2 && of(4) == 0 {
            let inner = if kind == 0 { "rate 4Mbit/s  ceil 50Mbit/s" } else { "linkshare 4Mbit/s" };
            let _ = write!(text, "class c{n} {{ {inner}");
            for below in 0..1 + of(3) {
                let _ = write!(text, "  class c{n}x{below} {{ {} {queue} }}", words(&mut of, 1000));
            }
            text.push_str(" }\n");
        } else {
            let _ = writeln!(text, "class c{n} {{ {} {queue} {default} }}", words(&mut of, 8000));
        }
        let rule = match of(8) {
            0 => format!("dscp {}", of(64)),
            1 => format!("src 10.{}.0.0/{}", of(256), 16 + of(17)),
            2 => format!("dst 2001:db8:{:x}::/48 proto udp", of(65_536)),
            3 => format!("proto tcp dport {}-{}", 1000 + of(10), 2000 + of(10)),
            4 => format!("mark {:#x}/{:#x}", of(16), 15),
            5 => format!("length {}-{}", of(100), 100 + of(1000)),
            6 => format!("sport {}", 1 + of(65_535)),
            _ => format!("src !192.0.2.0/28 dport {}", 1 + of(65_535)),
        };
        // A class with others below it has no packets of its own.
        if !text.contains(&format!("class c{n}x")) {
            let _ = writeln!(text, "match {rule} -> c{n}");
        }
    }
    link(&(text + "}"))
}

/// A link with so many customers in groups of 50, each with an address.
pub fn customers(count: u32) -> Link {
    let mut text = "link wan { device eth0  rate 10Gbit/s  overhead ethernet  scheduler htb\n".to_owned();
    for group in 0..count.div_ceil(50) {
        let _ = writeln!(text, "class g{group} {{ rate 50Mbit/s  ceil 1Gbit/s");
        for n in group * 50..count.min((group + 1) * 50) {
            let queue = "queue drop_tail { limit 100packets }";
            let _ = writeln!(text, "class c{n} {{ rate 1Mbit/s  ceil 100Mbit/s  {queue} }}");
        }
        text.push_str("}\n");
    }
    text.push_str("class rest { rate 10Mbit/s  default }\n");
    for n in 0..count {
        let _ = writeln!(text, "match dst 10.{}.{}.{} -> c{n}", n >> 16, n >> 8 & 255, n & 255);
    }
    link(&(text + "}"))
}
