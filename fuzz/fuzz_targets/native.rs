//! Any text as a policy: accepted or refused with a place, never a panic. What is accepted can be
//! built, and what is printed of it reads back as the same.

#![no_main]

use altq_config::{Language, parse_str, print};
use altq_engine::Engine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Includes read files of the machine.
    if text.contains("include") {
        return;
    }
    match parse_str(text, "fuzz.altq", Language::Native) {
        Ok(policy) => {
            for link in &policy.links {
                Engine::new(&link.spec).expect("an accepted policy can be built");
            }
            let printed = print(&policy);
            let again = parse_str(&printed.text, "printed.altq", Language::Native)
                .unwrap_or_else(|failed| panic!("what was printed is refused:\n{}\n{failed}", printed.text));
            if printed.left_out.is_empty() {
                for (link, other) in policy.links.iter().zip(&again.links) {
                    assert_eq!(link.spec.classes.len(), other.spec.classes.len(), "{}", printed.text);
                    assert_eq!(link.spec.rules, other.spec.rules, "{}", printed.text);
                    assert_eq!(format!("{:?}", link.spec), format!("{:?}", other.spec), "{}", printed.text);
                }
            }
        }
        Err(failed) => {
            assert!(!failed.diagnostics.is_empty());
            let _ = failed.to_string();
        }
    }
});
