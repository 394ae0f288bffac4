//! The blocks of altqstat, with figures worked out by hand and with those of engines.

use altq_config::Language;
use altq_engine::{Engine, Packet};

use super::block::{Cbq, Curve, Fifoq, Hfsc, Priq, Red, WfqQueue, Which};
use super::*;

#[test]
fn a_class_of_cbq() {
    // docs/reference/altq.md 2.2, worked example: 10 of 100 Mbit/s with all defaults. 22800 >> 5 =
    // 712; -38400 / 32 = -1200. The average idleness of -33 is shifted: -2, not -1.
    let class = Cbq {
        which: Which::Class(3),
        interface: "em0".into(),
        name: "misc".into(),
        priority: 1,
        depth: 0,
        offtime: Some(2193),
        wrr_allot: Some(1500),
        ns_per_byte: Some(800),
        rate: 8e9 / 800.0,
        measured: 9_984_321,
        packets: 4160,
        bytes: 6_240_000,
        over: Some(4000),
        overactions: Some(260),
        borrows: Some(12),
        delays: Some(250),
        drops: (7, 10_500),
        red: Some(Red { average_thousandths: Some(6250), sent: 4160, forced: Some(1), early: Some(6), marked: 2 }),
        queued: 5,
        limit: Some(60),
        idle: Some((-33, 22_800, -38_400)),
    };
    let expected = "Class 3 on Interface em0: misc
\tpriority: 1 depth: 0 offtime: 2193 [us] wrr_allot: 1500 bytes
\tnsPerByte: 800\t(10.00Mbps),\tMeasured: 9.98M [bps]
\tpkts: 4160,\tbytes: 6240000
\tovers: 4000,\toveractions: 260
\tborrows: 12,\tdelays: 250
\tdrops: 7,\tdrop_bytes: 10500
     RED q_avg:6.25 xmit:4160 (forced:1 early:6 marked:2)
\tQCount: 5,\t(qmax: 60)
\tAvgIdle: -2 [us],\t(maxidle: 712 minidle: -1200 [us])
";
    assert_eq!(class.to_string(), expected);
    let names = [Which::Root, Which::Default, Which::Control].map(|which| {
        let text = Cbq { which, ..class.clone() }.to_string();
        text.lines().next().unwrap().to_owned()
    });
    assert_eq!(
        names,
        [
            "Root Class for Interface em0: misc",
            "Default Class for Interface em0: misc",
            "Ctl Class for Interface em0: misc"
        ]
    );
}

#[test]
fn classes_of_the_others() {
    let curve = |m1, d_ms, m2| Curve { m1, d_ms, m2 };
    let video = Hfsc {
        number: 4,
        name: "video".into(),
        real_time: curve(30_000_000, 10, 8_000_000),
        link_share: curve(0, 0, 20_000_000),
        upper_limit: curve(40_000_000, 0, 40_000_000),
        measured: 12_000_000,
        measured_real_time: Some(8_000_000),
        queued: 3,
        period: Some(17),
        packets: 1000,
        bytes: 1_500_000,
        drops: (2, 3000),
        cumul: Some(1_000_000),
        total: Some(1_500_000),
        red: None,
    };
    // 1,000,000 = 0xf4240; 1,500,000 = 0x16e360.
    let expected = "[ 4 video] handle:0x4 [rt 30.00M 10ms 8.00M][ls 0 0ms 20.00M][ul 40.00M 0ms 40.00M]
  measured: 12.00Mbps [rt:8.00M ls:4.00M] qlen: 3 period:17
     packets:1000 (1500000 bytes) drops:2 (3000 bytes) \n     cumul:0xf4240 total:0x16e360\n";
    assert_eq!(video.to_string(), expected);
    let plain = Hfsc { upper_limit: Curve::default(), ..video }.to_string();
    assert!(plain.starts_with("[ 4 video] handle:0x4 [rt 30.00M 10ms 8.00M][ls 0 0ms 20.00M]\n  measured"), "{plain}");

    let voice = Priq {
        handle: 2,
        name: "voice".into(),
        priority: 15,
        measured: 64_000,
        queued: 1,
        period: Some(400),
        packets: 401,
        bytes: 80_200,
        drops: 0,
        red: None,
    };
    let expected =
        "[voice] handle:0x2 pri:15\n  measured: 64.00Kbps qlen: 1 period:400\n     packets:401 (80200 bytes) drops:0\n";
    assert_eq!(voice.to_string(), expected);

    let fifo = Fifoq { queued: 9, limit: Some(50), period: None, sent: (10, 15_000), dropped: (1, 1500), bit_s: 0 };
    assert_eq!(
        fifo.to_string(),
        " q_len:9 q_limit:50 period:-\n xmit:10 pkts (15000 bytes) drop:1 pkts (1500 bytes)\n throughput: 0bps\n"
    );

    let queue = WfqQueue {
        number: 17,
        weight: Some(100),
        queued_bytes: 4096,
        packets: 123,
        bytes: 10_240,
        drops: (2, 2048),
        bit_s: 1_500_000,
    };
    // The columns have the widths 4, 4, 4, 10, 14, 10, 14, 9.
    assert_eq!(queue.to_string(), "[  17]  100    4        123             10          2              2     1.50M\n");
}

#[test]
fn the_regulator() {
    // 8 x 1500 bytes are more than 10240 and are printed in units of 1024; 4 x 1500 are not.
    assert_eq!(tbrconfig_line(45_000_000, 12_000), "em0: tokenrate 45.00M(bps)  bucketsize 11.72K(bytes)\n");
    assert_eq!(tbrconfig_line(640_000, 6_000), "em0: tokenrate 640.00K(bps)  bucketsize 6000(bytes)\n");
    assert_eq!(block::tbrconfig("em0", None), "no token bucket regulater found on em0\n");
}

fn tbrconfig_line(rate: u64, depth: u32) -> String {
    block::tbrconfig("em0", Some((rate, depth)))
}

fn stat(policy: &str) -> LinkStat {
    let link = altq_config::parse_str(policy, "test.altq", Language::Native).unwrap().links.remove(0);
    let mut engine = Engine::new(&link.spec).unwrap();
    for n in 0..1000u32 {
        let now = u64::from(n) * 1_000_000;
        engine.enqueue(now, 1 + n % 2, Packet::new(n, 1500));
        engine.dequeue(now);
    }
    LinkStat::of(&link, &engine, 1_000_000_000)
}

#[test]
fn classic_cbq_of_an_engine() {
    let stat = stat(
        "link em0 { rate 100Mbit/s regulator altq scheduler cbq { estimator classic }
        class misc { share 10% } class rest { share 90% default } }",
    );
    let text = print(&stat);
    assert!(
        text.starts_with("altqstat: cbq on interface em0\nRoot Class for Interface em0: em0\n\tpriority: 0 depth: 1 "),
        "{text}"
    );
    // 1000 packets of 1500 bytes in a second, half of them for each class: 6 Mbit/s of 10. The
    // estimator's values are those of docs/reference/altq.md 2.2.
    let misc = text.split("Class 1 on Interface em0: misc\n").nth(1).unwrap();
    assert!(misc.starts_with("\tpriority: 1 depth: 0 offtime: 2193 [us] wrr_allot: "), "{text}");
    assert!(
        misc.contains("\tnsPerByte: 800\t(10.00Mbps),\tMeasured: 6.00M [bps]\n\tpkts: 500,\tbytes: 750000\n"),
        "{text}"
    );
    assert!(misc.contains("(maxidle: 712 minidle: -1200 [us])"), "{text}");
    assert!(text.contains("Default Class for Interface em0: rest\n"), "{text}");
    assert_eq!(tbrconfig(&stat), "em0: tokenrate 100.00M(bps)  bucketsize 11.72K(bytes)\n");
}

#[test]
fn other_schedulers_of_an_engine() {
    let exact =
        print(&stat("link em0 { rate 100Mbit/s scheduler cbq class a { share 10% } class b { share 90% default } }"));
    // Exact CBQ has no estimator, and no values are invented for it.
    assert!(exact.contains("depth: 0 offtime: - [us] wrr_allot: - bytes\n\tnsPerByte: 800\t(10.00Mbps)"), "{exact}");
    assert!(exact.contains("AvgIdle: - [us],\t(maxidle: - minidle: - [us])"), "{exact}");
    let priq = print(&stat(
        "link em0 { rate 100Mbit/s scheduler priq class a { priority 3 } class b { priority 9 default } }",
    ));
    let order: Vec<&str> = priq.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(order, ["[b] handle:0x2 pri:9", "[a] handle:0x1 pri:3"]);
    // Each packet left at once, so the queue ran empty after each one.
    assert!(
        priq.contains("  measured: 6.00Mbps qlen: 0 period:500\n     packets:500 (750000 bytes) drops:0\n"),
        "{priq}"
    );
    let drr = print(&stat("link em0 { rate 100Mbit/s scheduler drr class a { quantum 300 } class b { default } }"));
    assert!(drr.contains("[   1]  300    0        500            732          0              0     6.00M\n"), "{drr}");
    let fifo = print(&stat("link em0 { rate 100Mbit/s scheduler fifo class a { } class b { default } }"));
    assert!(fifo.contains(" xmit:1000 pkts (1500000 bytes) drop:0 pkts (0 bytes)\n throughput: 12.00Mbps\n"), "{fifo}");
    assert_eq!(
        tbrconfig(&stat("link em0 { rate 1Mbit/s scheduler fifo class a { } class b { default } }")),
        "no token bucket regulater found on em0\n"
    );
}
