//! A worker that ends at a bad moment, or is not heard of in time. A socket on which the test
//! writes, and a program that sleeps, stand for it: so each line comes when the test wants it.

use std::ffi::OsString;
use std::path::PathBuf;

use altq_control::Request;
use altq_control::change::{Answer, Ask, By};
use altq_control::journal::note;

use super::*;
use crate::commands::run::keep::begin;

/// What runs at first. All packets of its queues have slots, and these are more than the least
/// number.
const POLICY: &str = "link wan { device bridge a b  rate 100Mbit/s  scheduler cbq
    class calls { share 20%  queue drop_tail { limit 5000packets } }
    class rest { share 40%  default } }";

/// The time in which a change is to be confirmed: longer than a test takes.
const LONG: Nanos = 600_000_000_000;

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    args: Args,
}

/// A folder with a policy, and the arguments with which it runs.
struct Given {
    folder: PathBuf,
    args: Args,
}

impl Given {
    fn new(name: &str) -> Given {
        let folder = std::env::temp_dir().join(format!("altq-worker-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (file, state) = (folder.join("p.altq"), folder.join("state"));
        std::fs::write(&file, POLICY).unwrap();
        let words: [OsString; 6] = [
            "altq".into(),
            file.into(),
            "--supervise".into(),
            "--subscribers=10".into(),
            "--state".into(),
            state.into(),
        ];
        let Program { args } = <Program as clap::Parser>::parse_from(words);
        Given { folder, args }
    }

    /// Writes the policy's file anew.
    fn write(&self, text: &str) {
        std::fs::write(&self.args.policy.file, text).unwrap();
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A supervisor that has had a worker that shaped, and what its worker writes to.
struct Supervised<'a> {
    supervisor: Supervisor<'a>,
    to: UnixStream,
}

impl<'a> Supervised<'a> {
    fn new(args: &'a Args) -> Supervised<'a> {
        let (policy, told, keeper) = begin(args).unwrap();
        let links = choose(&policy, None).unwrap().into_iter().cloned().collect();
        let (beats, to) = UnixStream::pair().unwrap();
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        // Nobody reads what the worker is sent.
        let (policies, _) = mpsc::channel();
        let known = Known { told, files: drift::files(&policy), links };
        let mut supervisor = Supervisor::new(args, known, keeper, None).unwrap();
        supervisor.worker = Some(Worker { child, beats, lines: Lines::default(), policies, end, awaits: None });
        supervisor.shaped = true;
        Supervised { supervisor, to }
    }

    /// The worker says a line, and is heard.
    fn says(&mut self, line: &[u8]) {
        self.to.write_all(line).unwrap();
        self.supervisor.listen();
    }

    /// The worker asks, and is answered.
    fn asks(&mut self, ask: Ask) {
        let mut line = serde_json::to_vec(&Question { keep: 1, ask }).unwrap();
        line.push(b'\n');
        self.says(&line);
    }

    /// The worker says that a client has set the link's rate.
    fn sets(&mut self, rate_bit_s: u64) {
        self.says(&note(&Request::SetLink { link: "wan".to_owned(), rate_bit_s }));
    }

    /// The worker makes a change. It has said no more yet.
    fn makes(&mut self, text: &Text, what: What, wait_ns: Option<Nanos>) {
        let (text, before) = (text.clone(), self.runs().clone());
        let (guards, by, lines) = (Vec::new(), By::default(), Vec::new());
        self.asks(Ask::Begin { text, before, wait_ns, guards, what, by, lines });
        self.asks(Ask::Made);
    }

    /// The first policy with other words.
    fn changed(&self, from: &str, to: &str) -> Text {
        Text { text: POLICY.replace(from, to), ..self.runs().clone() }
    }

    /// The policy with which the next worker begins.
    fn runs(&self) -> &Text {
        &self.supervisor.known.told.text
    }

    /// The rates that the next worker is given.
    fn rates(&self) -> BTreeMap<String, u64> {
        locked(&self.supervisor.journal).rates().clone()
    }
}

/// The link has been set to a rate.
fn set(rate_bit_s: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([("wan".to_owned(), rate_bit_s)])
}

/// `altq class set` is none of the rates that were set, and a worker repeats them only a moment
/// after it has made the change. Killed in that moment, it must not take them with it. A whole
/// policy has its own rates.
#[test]
fn rates_outlive_a_worker_that_is_killed_just_after_a_class_was_set() {
    for (what, rates) in [(What::Edited, set(50_000_000)), (What::Applied, BTreeMap::new())] {
        let given = Given::new("class-set");
        let mut supervised = Supervised::new(&given.args);
        supervised.sets(50_000_000);
        let new = supervised.changed("share 20%", "share 25%");
        supervised.makes(&new, what, None);
        supervised.supervisor.kill();
        assert_eq!((supervised.runs(), supervised.rates()), (&new, rates), "{what:?}");
    }
}

/// With the policy before a change come back the rates that were set before it, also if the worker
/// is killed before it has said so.
#[test]
fn rates_outlive_a_worker_that_is_killed_just_after_a_change_was_taken_back() {
    let given = Given::new("reverted");
    let mut supervised = Supervised::new(&given.args);
    supervised.sets(50_000_000);
    supervised.asks(Ask::Rates { rates: set(50_000_000) });
    let new = supervised.changed("share 20%", "share 25%");
    supervised.makes(&new, What::Applied, Some(LONG));
    assert_eq!((supervised.runs(), supervised.rates()), (&new, BTreeMap::new()));
    supervised.asks(Ask::Reverted { why: "rolled back".to_owned() });
    supervised.supervisor.kill();
    assert_eq!((supervised.runs().text.as_str(), supervised.rates()), (POLICY, set(50_000_000)));
}

/// A worker takes a while to read a long policy after SIGHUP, and answers at the end. What clients
/// have it do between the change and its answer must not be replaced by the file.
#[test]
fn what_clients_change_before_a_sighup_is_answered_runs_on() {
    let given = Given::new("hangup");
    let mut supervised = Supervised::new(&given.args);
    let read = supervised.changed("share 20%", "share 25%");
    given.write(&read.text);
    supervised.supervisor.reload();
    supervised.makes(&read, What::Hangup, None);
    let applied = Text { name: "other.altq".to_owned(), ..supervised.changed("share 20%", "share 30%") };
    supervised.makes(&applied, What::Applied, None);
    supervised.sets(50_000_000);
    supervised.says(b"taken 1\n");
    assert_eq!((supervised.runs(), supervised.rates()), (&applied, set(50_000_000)));
    // The file counts as read all the same.
    let told = &supervised.supervisor.known.told;
    assert_eq!((told.number, told.begun.file.as_ref()), (1, Some(&read)));
    assert!(supervised.supervisor.next.is_none());
}

/// A worker that begins with a change has slots for what that change holds. If the policy before
/// holds more, no such worker can ever go back to it: so the supervisor goes back before one
/// begins. Any other change waits on.
#[test]
fn a_change_that_no_new_worker_could_take_back_is_taken_back_before_one_begins() {
    for (from, to, stays) in [("share 20%", "share 25%", true), ("5000packets", "50packets", false)] {
        let given = Given::new("slots");
        let mut supervised = Supervised::new(&given.args);
        supervised.sets(50_000_000);
        supervised.asks(Ask::Rates { rates: set(50_000_000) });
        let new = supervised.changed(from, to);
        supervised.makes(&new, What::Applied, Some(LONG));
        supervised.supervisor.kill();
        supervised.supervisor.take_back_at_start();
        let (text, rates, what) = match stays {
            true => (new.text.as_str(), BTreeMap::new(), What::Applied),
            false => (POLICY, set(50_000_000), What::Reverted),
        };
        assert_eq!((supervised.runs().text.as_str(), supervised.rates()), (text, rates));
        assert_eq!(supervised.supervisor.keeper.waits().is_some(), stays, "{to}");
        let Answer::History { entries } = supervised.supervisor.keeper.ask(Ask::History) else { panic!("no history") };
        assert_eq!(entries.last().map(|entry| entry.what), Some(what));
    }
}

/// Policies that are read while no worker runs have not run yet. If a worker ends by itself before
/// it shapes with the last of them, what ran before comes back, with the rates that were set.
#[test]
fn policies_with_which_no_worker_begins_give_way_to_the_one_that_ran() {
    let given = Given::new("unproven");
    let mut supervised = Supervised::new(&given.args);
    supervised.sets(50_000_000);
    supervised.supervisor.kill();
    for share in ["share 25%", "share 30%"] {
        given.write(&POLICY.replace("share 20%", share));
        supervised.supervisor.reload();
        assert!(supervised.runs().text.contains(share) && supervised.rates().is_empty(), "{share}");
    }
    supervised.supervisor.forget_unproven(7);
    assert_eq!((supervised.runs().text.as_str(), supervised.rates()), (POLICY, set(50_000_000)));
    // One with which a worker shapes stays, however that ends.
    supervised.supervisor.reload();
    let now = supervised.supervisor.now();
    assert_eq!(supervised.supervisor.watch.due(now), Act::Start);
    assert!(supervised.supervisor.watch.beat(now));
    supervised.supervisor.forget_unproven(7);
    assert!(supervised.runs().text.contains("share 30%"));
}

/// While no worker runs, the supervisor alone knows what clients have made. A file without room for
/// it is not taken, whether it was read just now or while a worker began that has ended since.
#[test]
fn a_file_without_room_for_what_clients_have_made_is_not_taken() {
    let given = Given::new("no-room");
    let mut supervised = Supervised::new(&given.args);
    let subscriber = r#"{"id":"a","addr":["10.0.0.1"],"classes":[{"link":"wan","rate_bit_s":30000000}]}"#;
    supervised.says(format!("{{\"op\":\"subscriber.set\",\"subscribers\":[{subscriber}]}}\n").as_bytes());
    supervised.supervisor.kill();
    for (share, fits) in [("share 80%", false), ("share 30%", true)] {
        given.write(&POLICY.replace("share 40%", share));
        supervised.supervisor.reload();
        assert_eq!(supervised.runs().text.contains(share), fits, "{share}");
    }
    // As `down` does, where the worker that began meanwhile has not shaped.
    let before = supervised.runs().clone();
    let known = &supervised.supervisor.known;
    let (told, files) = (known.told.clone(), known.files.clone());
    supervised.supervisor.next = Some(Known { told, files, links: Vec::new() });
    supervised.supervisor.take_next();
    assert!(supervised.supervisor.next.is_none());
    assert_eq!((supervised.runs(), supervised.supervisor.known.links.len()), (&before, 1));
}
