//! Found by fuzzing: timers far beyond the wheel's horizon, and silences far longer than it.

use altq_engine::settings::{Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Rate, SECOND};
use altq_engine::{Engine, Packet};

/// Two classes that may send a packet in hours, and forty years of silence. A wheel that turned
/// through the silence would not come to the end of this test.
#[test]
fn a_long_silence_is_no_long_work() {
    let class = |rate| ClassSpec {
        parent: ROOT,
        settings: Settings::new().with("rate", Value::Rate(Rate::bit_s(rate))),
        queue: None,
        scheduler: None,
    };
    let spec = LinkSpec::new(Rate::mbit_s(10), SchedulerSpec::new("cbq"), vec![class(10_000_000), class(1), class(3)]);
    let mut engine = Engine::new(&spec).expect("a policy that holds");
    for handle in 0..20 {
        engine.enqueue(0, 1 + handle % 2, Packet::new(handle, 1500));
    }
    let mut first = 0;
    while engine.dequeue(0).is_some() {
        first += 1;
    }
    // The credit of idleness goes at once; a packet at 3 bit/s takes 4000 s, which is when the next
    // one is due at the earliest.
    let wakeup = engine.next_wakeup().expect("packets wait");
    assert!((1..20).contains(&first) && wakeup > 1000 * SECOND, "{first} at once, then at {wakeup}");
    let later = 40 * 365 * 86_400 * SECOND;
    let mut rest = 0;
    while engine.dequeue(later).is_some() {
        rest += 1;
    }
    assert!(rest > 0, "what has become due in forty years goes");
    assert!(engine.next_wakeup().is_none_or(|at| at > later));
}
