//! Any bytes as a list of arrivals: refused, or replayed under each estimator, and every packet
//! comes out once or is still queued.

#![no_main]

use std::sync::OnceLock;

use altq_cases::limits::tick;
use altq_config::{Language, Policy, parse_str};
use altq_simulator::replay::{Arrivals, CsvOutput, Options, run};
use libfuzzer_sys::fuzz_target;

const POLICIES: [&str; 4] = [
    "link l { rate 10Mbit/s scheduler cbq class a { share 20% borrow } class b { share 80% } }",
    "link l { rate 1Mbit/s overhead pppoe-llcsnap scheduler cbq { excess priority } \
     class x { share 50% borrow class a { share 20% borrow priority 7 queue drop_head { limit 4packets } } \
     class b { share 30% ceiling 600kbit/s borrow queue drop_tail { limit 3000bytes } } } }",
    "link l { rate 10Mbit/s regulator altq scheduler cbq { estimator classic } class a { share 20% borrow } \
     class b { share 80% } }",
    "link l { rate 64kbit/s scheduler fifo class a { } class b { } }",
];

fn policies() -> &'static [Policy] {
    static READ: OnceLock<Vec<Policy>> = OnceLock::new();
    READ.get_or_init(|| {
        let read =
            |text: &&str| parse_str(text, "fuzz.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        POLICIES.iter().map(read).collect()
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((how, list)) = input.split_first() else { return };
    let policies = policies();
    let link = &policies[*how as usize % policies.len()].links[0];
    let Ok(arrivals) = Arrivals::read(list, link) else { return };
    // Longer lists take time and find nothing more.
    if arrivals.len() > 300 {
        return;
    }
    let last = arrivals.time(arrivals.len().saturating_sub(1)).unwrap_or(0);
    let mut options = Options { tx_ring: 1 + (*how as usize >> 2) % 4, from: last / 2, ..Options::default() };
    // With tick timers the engine is asked at every tick until the link is empty, so they are used
    // only if that is soon.
    if how & 0x80 != 0 && last < 10_000_000_000 {
        options.timer = tick(1000).expect("1000 Hz");
    }
    let (mut departures, mut drops) = (Vec::new(), Vec::new());
    let mut output = CsvOutput::new(link, &arrivals, Some(&mut departures), Some(&mut drops)).expect("a Vec takes all");
    let result = run(link, &arrivals, &options, &mut output);
    output.finish().expect("a Vec takes all");
    let Ok(report) = result else { return };
    let lines = |text: &[u8]| text.iter().filter(|b| **b == b'\n').count() - 1;
    let queued: u64 = report.classes[0].queued_packets;
    assert_eq!(lines(&departures) + lines(&drops) + queued as usize, arrivals.len());
});
