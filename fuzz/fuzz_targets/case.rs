//! Any text as a case file: accepted or refused, never a panic.

#![no_main]

use std::path::Path;

use altq_cases::case::Case;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Case::parse(text, Path::new("fuzz.toml")) {
        let _ = error.to_string();
    }
});
