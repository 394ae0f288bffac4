//! Any text as an altq.conf or cbq.conf: accepted or refused with a place, never a panic. What is
//! accepted can be built, and converted to a policy that is accepted as well.

#![no_main]

use altq_config::{Language, parse_str, print};
use altq_engine::Engine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse_str(text, "fuzz.conf", Language::Altq) {
        Ok(policy) => {
            for link in &policy.links {
                Engine::new(&link.spec).expect("an accepted policy can be built");
            }
            let printed = print(&policy);
            if let Err(failed) = parse_str(&printed.text, "printed.altq", Language::Native) {
                panic!("what was printed is refused:\n{}\n{failed}", printed.text);
            }
        }
        Err(failed) => {
            assert!(!failed.diagnostics.is_empty());
            let _ = failed.to_string();
        }
    }
});
