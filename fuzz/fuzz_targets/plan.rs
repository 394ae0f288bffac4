//! Any text as a plan of `altq traffic mix`: accepted or refused. A plan that is accepted can be
//! sent to a server, which reads it again.

#![no_main]

use std::path::Path;

use altq_traffic::plan::FlowSpec;
use altq_traffic::plan_file::{Family, PlanFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match PlanFile::parse(text, Path::new("fuzz.toml")) {
        Err(error) => drop(error.to_string()),
        Ok(plan) => {
            for flow in plan.flows.iter().flat_map(|flow| flow.flows(Family::Ipv6, true, 2587, u64::MAX)) {
                let said = serde_json::to_vec(&flow.spec).unwrap();
                assert_eq!(serde_json::from_slice::<FlowSpec>(&said).unwrap(), flow.spec);
            }
        }
    }
});
