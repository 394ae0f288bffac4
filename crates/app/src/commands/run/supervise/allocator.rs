//! How the C library's allocator works in a worker: with as little memory as it can, for years.
//! That costs packets nothing, as loops do not allocate for them. C libraries other than glibc
//! ignore all of it.

use std::ffi::{OsStr, OsString};
use std::process::Command;

/// The variable of glibc's tunables: `NAME=VALUE`, with `:` between them.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Each thread keeps pieces that it freed, up to seven of each of 64 sizes, and these count as
/// used: memory grows for hours, until all threads have had all sizes. With this a thread keeps
/// none above 128 bytes, so 4 kB together. Answers about many classes need the small ones: with
/// none at all they take half as long again.
const FEW_KEPT: &str = "glibc.malloc.tcache_max=128";

/// Sets it for a worker that will be started.
pub fn set(worker: &mut Command, confined: bool) {
    worker.env(TUNABLES, tunables(std::env::var_os(TUNABLES).as_deref()));
    if confined {
        // A confined worker can open no files. Without these settings some C libraries read the
        // number of processors from a file, and /proc/sys/vm/overcommit_memory when a thread's
        // arena shrinks (with this threshold none ever does). So each arena keeps what its largest
        // work took, and with several of them memory grows until all have had that: there is one.
        worker.env("MALLOC_ARENA_MAX", "1").env("MALLOC_TRIM_THRESHOLD_", "1073741824");
    }
}

/// The tunables of a worker. What this process was given comes later, and so it counts.
fn tunables(given: Option<&OsStr>) -> OsString {
    let mut all = OsString::from(FEW_KEPT);
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        all.push(":");
        all.push(given);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_stays_and_counts() {
        assert_eq!(tunables(None), FEW_KEPT);
        assert_eq!(tunables(Some("".as_ref())), FEW_KEPT);
        let given = OsStr::new("glibc.malloc.tcache_max=512:glibc.malloc.perturb=1");
        assert_eq!(
            tunables(Some(given)),
            "glibc.malloc.tcache_max=128:glibc.malloc.tcache_max=512:glibc.malloc.perturb=1"
        );
    }
}
