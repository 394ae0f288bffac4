//! Exact CBQ: timers far beyond the timing wheel's horizon, and idle times far longer than it.
//! Fuzzing found a fault there.

use altq_engine::settings::{Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Rate, SECOND};
use altq_engine::{Engine, Packet};

/// Two classes of 1 and 3 bit/s, whose packets take hours, and forty years without a call. A wheel
/// that went through all slots of that time would not finish this test.
#[test]
fn a_long_idle_time_takes_no_time_to_pass() {
    let class = |rate| ClassSpec {
        parent: ROOT,
        settings: Settings::new().with("rate", Value::Rate(Rate::bit_s(rate))),
        queue: None,
        scheduler: None,
    };
    let spec = LinkSpec::new(Rate::mbit_s(10), SchedulerSpec::new("cbq"), vec![class(10_000_000), class(1), class(3)]);
    let mut engine = Engine::new(&spec).expect("a link without errors");
    for handle in 0..20 {
        engine.enqueue(0, 1 + handle % 2, Packet::new(handle, 1500));
    }
    let mut first = 0;
    while engine.dequeue(0).is_some() {
        first += 1;
    }
    // Each class sends its burst at once. The next packet is due after 4000 s at the earliest: as
    // long as one takes at 3 bit/s.
    let wakeup = engine.next_wakeup().expect("packets wait");
    assert!((1..20).contains(&first) && wakeup > 1000 * SECOND, "{first} at once, then at {wakeup}");
    let later = 40 * 365 * 86_400 * SECOND;
    let mut rest = 0;
    while engine.dequeue(later).is_some() {
        rest += 1;
    }
    assert!(rest > 0, "packets are due after forty years");
    assert!(engine.next_wakeup().is_none_or(|at| at > later));
}
