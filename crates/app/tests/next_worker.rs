//! What the next worker of `altq run --supervise` runs where the one before ended at a bad moment.
//! The tests are skipped with a message where the host does not allow them.

mod supervised;
#[path = "../../dataplane/tests/world/mod.rs"]
mod world;

use std::time::Duration;

use serde_json::Value;
use supervised::{ONE, Running, signal, until};
use world::world;

/// All packets of its queues have slots, and these are more than the least number.
const LONG: &str = "link wan { device bridge a b  rate 100Mbit/s  scheduler cbq
    class calls { share 20%  borrow  queue drop_tail { limit 5000packets } }
    class rest { share 40%  borrow  default } }";

const SUPERVISED: &[&str] = &["--supervise", "--user", "nobody"];

/// The longest that a step takes on a busy host.
const MOST: Duration = Duration::from_secs(20);

/// The worker; `None`, with a message, where it cannot be found.
fn worker(running: &Running<'_>) -> Option<u32> {
    let found = running.worker();
    if found.is_none() {
        eprintln!("SKIPPED: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)");
    }
    found
}

/// Waits until another worker than this one shapes.
fn next(running: &Running<'_>, before: u32) -> u32 {
    let mut worker = before;
    until("another worker", MOST, || {
        worker = running.worker().unwrap_or(before);
        worker != before
    });
    until("it shapes", MOST, || running.ask(&["status"]).status.code() == Some(0));
    worker
}

/// Whether a process has ended with all its threads, even if its parent was not told yet.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads <= 1 && (state.is_empty() || state.starts_with(['Z', 'X']))
}

/// The new policy has fewer slots, so a worker that begins with it could never go back to the old
/// one: `altq rollback` would be refused, and the change would go only when its time is over, with
/// a worker that is killed for it. So it goes before such a worker begins.
#[test]
fn a_change_that_the_next_worker_could_not_take_back_is_taken_back_before_it_begins() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "slots", LONG, SUPERVISED) else { return };
    let Some(first) = worker(&running) else { return };
    let short = running.folder.join("short.altq");
    std::fs::write(&short, LONG.replace("5000packets", "50packets")).unwrap();
    let applied = running.ask(&["apply", short.to_str().unwrap(), "--confirm", "600s"]);
    assert_eq!(applied.status.code(), Some(0), "{}", String::from_utf8_lossy(&applied.stderr));
    assert!(running.json("status")["confirm_pending_s"].is_u64());
    signal(first, "-KILL");
    next(&running, first);
    assert!(running.json("status")["confirm_pending_s"].is_null(), "{}", running.log());
    let runs = running.ask(&["save", "-"]);
    assert_eq!(String::from_utf8_lossy(&runs.stdout), LONG, "{}", running.log());
    let history = running.json("history");
    let last = history["changes"].as_array().and_then(|changes| changes.last()).unwrap();
    assert_eq!(last["what"], "reverted", "{history}");
    running.says("is taken back: only a new start can take it back");
    running.end();
}

/// A policy that is read while no worker runs is tried by the next one. No worker can begin with
/// this one, so without the way back altq would try it for ever, and shape nothing.
#[test]
fn a_policy_with_which_no_worker_can_begin_gives_way_to_the_one_before() {
    let Some(world) = world() else { return };
    let Some(running) = Running::start(&world, "gives-way", ONE, SUPERVISED) else { return };
    let Some(first) = worker(&running) else { return };
    assert_eq!(running.ask(&["link", "set", "up", "rate", "50Mbit/s"]).status.code(), Some(0));
    // After the second end in a row altq waits a little before it starts the next worker.
    signal(first, "-KILL");
    let second = next(&running, first);
    // It learns at once that the worker has ended and that it is to read the file: so it reads it
    // while there is no worker.
    let supervisor = running.child.id();
    signal(supervisor, "-STOP");
    signal(second, "-KILL");
    until("the worker has ended", MOST, || has_ended(second));
    std::fs::write(running.folder.join("p.altq"), ONE.replace("device a", "device nowhere")).unwrap();
    signal(supervisor, "-HUP");
    signal(supervisor, "-CONT");
    until("the file is read", MOST, || running.log().contains("is read; the next worker runs it"));
    // With the rate that was set before.
    let rate = || {
        let stat = running.ask(&["stat", "--json"]);
        let document: Value = serde_json::from_slice(&stat.stdout).unwrap_or_default();
        document["links"][0]["classes"][0]["ceiling_bit_s"].as_u64()
    };
    until("the policy before runs again", MOST, || rate() == Some(50_000_000));
    running.says("no interface `nowhere`");
    running.says("the policy before runs again");
    running.end();
}
