//! Any bytes as requests for reservations, one a line: accepted or refused, never a panic. What is
//! accepted reads back the same; the sums never exceed what the policy has; the engine takes every
//! change; what is refused changes nothing; a state that is saved is restored.

#![no_main]

use altq_config::{Language, parse_str};
use altq_engine::{Change, Engine};
use altq_reserve::{Place, Reply, Request, Table};
use libfuzzer_sys::fuzz_target;

const POLICY: &str = "link l { rate 10Mbit/s overhead ethernet scheduler cbq
    class res  { rate 4Mbit/s  priority 6  reservations { delay 50ms  lifetime 600s  owner-most 8  most 40 } }
    class rest { rate 6Mbit/s  borrow  default } }";

fuzz_target!(|input: &[u8]| {
    let policy = parse_str(POLICY, "fuzz.altq", Language::Native).expect("a policy");
    let link = &policy.links[0];
    let new = || (Table::new(Place::of(link).expect("a place")), Engine::new(&link.spec).expect("an engine"));
    let (mut table, mut engine) = new();
    let mut now = 0_u64;
    for line in input.split(|byte| *byte == b'\n').take(200) {
        // A line of digits only is a wait, in milliseconds.
        if let Some(wait) = std::str::from_utf8(line).ok().and_then(|line| line.parse::<u32>().ok()) {
            now = now.saturating_add(u64::from(wait) * 1_000_000);
            continue;
        }
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => {
                assert!(error.to_string().len() <= 1000);
                continue;
            }
        };
        let said = serde_json::to_vec(&request).expect("a request is JSON");
        // A number with a point may be read with another last bit.
        let again = Request::parse(&said).expect("what is written is read");
        assert_eq!(Request { ttl_s: request.ttl_s, ..again }, request);
        let mut apply = |change: &Change| {
            let done = engine.apply(now, change);
            assert!(done.is_ok(), "{change:?}: {done:?}");
            done
        };
        table.expire(now, &mut apply).expect("the engine takes it");
        let before = table.save(now, 0);
        let reply = table.handle(now, &request, &mut apply);
        if let Reply::Answer(answer) = &reply
            && !answer.granted
        {
            assert_eq!(table.save(now, 0), before, "{request:?}");
        }
        assert!(serde_json::to_string(&reply).is_ok());
        let list = table.list(now);
        assert!(list.charged_bit_s <= 4_000_000 && list.burst_bytes <= list.buffer_bytes);
        let mut sum = 0;
        for there in table.reservations() {
            assert!(table.wait(there.id).is_some_and(|wait| wait <= 50_000_000));
            sum += there.charged();
        }
        assert_eq!(sum, list.charged_bit_s);
    }
    let state = table.save(now, 0);
    let (mut other, mut engine) = new();
    let mut apply = |change: &Change| engine.apply(0, change);
    let restored = other.restore(0, 0, &state, &mut apply).expect("a state of this version");
    assert_eq!(restored.restored + restored.expired, state.reservations.len(), "{restored:?}");
});
