//! Reads random variations of correct policies. Nothing panics, every place is inside its text,
//! every finding can be printed, and a policy that is accepted can be printed and read again.

use altq_config::{Language, parse_str, print, render};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

const NATIVE: &str = "set offices { 10.1.0.0/16 2001:db8:1::/48 }\n\
    link wan {\n device eth0 rate 100Mbit/s overhead 44 bytes atm mpu 96\n\
    regulator 12000bytes mtu 1500\n scheduler cbq { estimator exact excess share }\n\
    class voice { share 5% priority 7 ceiling 10Mbit/s borrow packetsize 160 maxburst 4 control }\n\
    class a { share 50.5% borrow class web { share 30% of parent queue drop_tail { limit 64000bytes } } \
    class b { scheduler fifo class c { } } }\n\
    class rest { rate 1Mbit/s borrow default }\n match dscp ef,va -> voice\n\
    match src offices,!10.1.7.0/24 proto tcp dport 80,443-450 tcp-flags syn/syn+ack -> web\n}\n";
const ALTQ: &str = "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
    class cbq em0 def root borrow pbandwidth 20 default\n\
    class cbq em0 north root borrow pbandwidth 40 maxburst 8\n\
    class cbq em0 mail north exactbandwidth 1.5M maxdelay 60 packetsize 200\n\
    filter em0 north 0 0 10.1.0.0 netmask 0xffff0000 0 0\n\
    filter em0 mail ruleno 3 0 25 10.1.0.0 netmask 255.255.0.0 0 6 tos 0xb8 tosmask 0xfc\n\
    filter6 em0 north 2001:db8::/32 0 0 0 17 flowlabel 5\n";
/// Disciplines other than CBQ.
const DISCIPLINES: &str = "red 5 15 20\nrio 35 45 10 20 30 10 5 15 5\ninterface em1 bandwidth 100M hfsc\n\
    class hfsc em1 bulk root pshare 60 default\nclass hfsc em1 video root [rt 30M 10 8M] [ ls 0 0 20M ] ulimit 40M\n\
    class hfsc em1 dept root [sc 8M 20 5M] qlimit 100\nclass hfsc em1 mail dept grate 1M pshare 1 rio\n\
    filter em1 video 10.1.0.7 0 0 0 17\nfilter em1 dept 0 0 0 0 6\n\
    interface em2 priq\nclass priq em2 a NULL priority 15 red ecn\nclass priq em2 b NULL default\n\
    interface em3 red qlimit 100 thmin 10 thmax 30 weight 256 ecn flowvalve\ninterface em4 rio lo_thmin 30\n\
    interface em5 blue maxpmark 1000 holdtime 10000\ninterface em6 fifoq qlimit 20\n\
    interface em7 wfq nqueues 64 qsize 32K hash full\ninterface em8\n\
    conditioner em8 gold <trtcm 2M 16K 5M 32K <mark 0x28><tswtcm 1M 2M 500 <pass><mark 0x30><drop>><drop> colorblind>\n\
    filter em8 gold 0 0 192.0.2.0 netmask 255.255.255.0 0 0\ninterface em9 jobs qlimit 90 separate\n\
    class jobs em9 a NULL priority 0 adc 5000 alc 0.1 rdc 4\nclass jobs em9 b NULL priority 1 arc 1M rlc -1 default\n";
const WORDS: &[&str] = &[
    "{",
    "}",
    "->",
    "!",
    ",",
    "#",
    "\"",
    "\\",
    "\n",
    " ",
    "\0",
    "\u{a0}",
    "é",
    "%",
    "-",
    "/",
    "0",
    "1",
    "99999999999999999999",
    "0.5%",
    "101%",
    "1mbps",
    "5bit/s",
    "0bit/s",
    "18446744073709551615bit/s",
    "class",
    "link",
    "match",
    "all",
    "queue",
    "scheduler",
    "cbq",
    "fifo",
    "classic",
    "default",
    "borrow",
    "share",
    "rate",
    "of",
    "parent",
    "overcommit",
    "control",
    "maxdelay 1s",
    "limit 0packets",
    "NULL",
    "0x",
    "::",
    "::/0",
    "0.0.0.0/0",
    "host",
    "filter",
    "class cbq",
    "pbandwidth 50",
    "em0",
    "interface",
    "netmask",
    "efficient",
    "u",
];

/// Changes the words of a text: leaves one out, writes one twice, moves one, or changes a digit.
fn reword(random: &mut Random, text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let (at, to) = (random.below(words.len()), random.below(words.len()));
    match random.below(6) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[to].clone()),
        2 => words.swap(at, to),
        _ => {
            let digit = char::from(b'0' + random.below(10) as u8);
            let from = words.iter().enumerate().skip(at).find(|(_, word)| word.contains(|c: char| c.is_ascii_digit()));
            if let Some((at, word)) = from {
                let place = word.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
                words[at].replace_range(place..=place, &digit.to_string());
            }
        }
    }
    words.join(" ")
}

fn mutate(random: &mut Random, text: &str) -> String {
    if random.below(2) == 0 {
        return reword(random, text);
    }
    let mut text: Vec<char> = text.chars().collect();
    for _ in 0..1 + random.below(3) {
        let at = random.below(text.len());
        let end = (at + random.below(9)).min(text.len());
        match random.below(4) {
            0 => drop(text.drain(at..end)),
            1 => {
                let piece: Vec<char> = text[at..end].to_vec();
                let to = random.below(text.len());
                text.splice(to..to, piece);
            }
            _ => {
                let word = WORDS[random.below(WORDS.len())];
                let blanks = random.below(2) == 0;
                let piece: Vec<char> =
                    if blanks { format!(" {word} ").chars().collect() } else { word.chars().collect() };
                text.splice(at..at, piece);
            }
        }
    }
    text.into_iter().collect()
}

#[test]
fn texts_that_are_nearly_right() {
    for (text, language) in [(NATIVE, Language::Native), (ALTQ, Language::Altq), (DISCIPLINES, Language::Altq)] {
        parse_str(text, "t", language).unwrap_or_else(|failed| panic!("{failed}"));
    }
    let mut random = Random(7);
    let (mut read, mut refused) = (0, 0);
    for round in 0..12_000 {
        let (base, language) = match round % 3 {
            0 => (NATIVE, Language::Native),
            1 => (ALTQ, Language::Altq),
            _ => (DISCIPLINES, Language::Altq),
        };
        let text = mutate(&mut random, base);
        let (findings, sources) = match parse_str(&text, "t", language) {
            Ok(policy) => {
                read += 1;
                let printed = print(&policy);
                let again = parse_str(&printed.text, "t", Language::Native);
                let again = again.unwrap_or_else(|failed| panic!("{failed}\n{text}\n{}", printed.text));
                for (a, b) in policy.links.iter().zip(&again.links) {
                    // Printing may change the order of classes, because children are printed inside
                    // their parent.
                    let classes = |link: &altq_config::Link| {
                        let class = |(at, spec): (usize, &altq_engine::spec::ClassSpec)| {
                            let parent = if at == 0 || spec.parent == 0 { "" } else { link.class_name(spec.parent) };
                            let name = if at == 0 { "" } else { link.class_name(at as u32) };
                            format!("{name} {parent} {:?} {:?} {:?}", spec.settings, spec.queue, spec.scheduler)
                        };
                        let mut classes: Vec<String> = link.spec.classes.iter().enumerate().map(class).collect();
                        classes.push(format!(
                            "default {:?}",
                            link.spec.default.filter(|class| *class != 0).map(|class| link.class_name(class))
                        ));
                        classes.sort();
                        classes
                    };
                    assert_eq!(classes(a), classes(b), "{text}\n{}", printed.text);
                }
                (policy.warnings, policy.sources)
            }
            Err(failed) => {
                refused += 1;
                assert!(failed.diagnostics.iter().any(|found| found.severity == altq_config::Severity::Error));
                (failed.diagnostics, failed.sources)
            }
        };
        for finding in &findings {
            for span in finding.labels.iter().map(|(span, _)| *span).chain([finding.span]) {
                let text = sources.text(span.source);
                assert!(span.start <= span.end && text.get(span.start..span.end).is_some(), "{finding:?}\n{text}");
            }
        }
        let shown = render(&findings, &sources, round % 3 == 0);
        assert_eq!(shown.is_empty(), findings.is_empty());
    }
    assert!(read > 500 && refused > 2_000, "{read} read, {refused} refused");
}
