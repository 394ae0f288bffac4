mod broken;
mod handed;

use std::cell::RefCell;
use std::rc::Rc;

use altq_engine::units::SECOND;
use proptest::prelude::*;

use super::*;

/// A disk. A crash loses what was not synced.
#[derive(Clone, Default)]
struct Fake(Rc<RefCell<State>>);

#[derive(Clone, Default)]
struct State {
    /// What is left after a crash, and what is there before it.
    durable: Option<Vec<u8>>,
    named: Option<Vec<u8>>,
    /// The other file, and whether it was synced.
    beside: Option<(Vec<u8>, bool)>,
    /// After how many steps the process dies.
    left: Option<usize>,
    steps: Vec<&'static str>,
    /// Whether a rename that was not synced survives a crash. Both are possible on a disk.
    early: bool,
    fails: bool,
    /// How many steps there were, and which of them fail.
    count: usize,
    errors: std::ops::Range<usize>,
}

const DEAD: &str = "the process is dead";

impl Fake {
    fn step(&self, name: &'static str) -> Result<(), String> {
        let mut state = self.0.borrow_mut();
        let at = state.count;
        state.count += 1;
        if state.fails || state.errors.contains(&at) {
            return Err("no space".to_owned());
        }
        match &mut state.left {
            Some(0) => return Err(DEAD.to_owned()),
            Some(left) => *left -= 1,
            None => {}
        }
        state.steps.push(name);
        Ok(())
    }

    /// So many of the steps that come fail, after some that do not.
    fn breaks(&self, after: usize, many: usize) {
        let mut state = self.0.borrow_mut();
        let from = state.count + after;
        state.errors = from..from.saturating_add(many);
    }

    /// The host loses power, or all processes are killed. The disk works again then.
    fn crash(&self) {
        let mut state = self.0.borrow_mut();
        if !state.early {
            state.named = state.durable.clone();
        }
        state.durable = state.named.clone();
        (state.beside, state.left, state.errors) = (None, None, 0..0);
    }
}

impl Disk for Fake {
    fn read(&mut self) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.borrow().named.clone())
    }

    fn write_beside(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.step("write")?;
        self.0.borrow_mut().beside = Some((bytes.to_vec(), false));
        Ok(())
    }

    fn sync_beside(&mut self) -> Result<(), String> {
        self.step("sync")?;
        if let Some(beside) = &mut self.0.borrow_mut().beside {
            beside.1 = true;
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<(), String> {
        self.step("rename")?;
        let mut state = self.0.borrow_mut();
        let (bytes, synced) = state.beside.take().unwrap();
        // A file whose content has not reached the disk is empty after a crash.
        assert!(synced, "it is on disk before it gets the name");
        state.named = Some(bytes);
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), String> {
        self.step("folder")?;
        let mut state = self.0.borrow_mut();
        state.durable = state.named.clone();
        Ok(())
    }
}

fn text(name: &str) -> Text {
    Text { name: format!("{name}.altq"), language: "native".to_owned(), text: format!("policy {name}") }
}

fn at(seconds: u64) -> Clock {
    Clock { unix_ns: (1_000_000 + seconds) * SECOND, boot_ns: (50 + seconds) * SECOND, boot_id: "one".to_owned() }
}

fn asked(name: &str, before: &str, wait_s: Option<u64>) -> Asked {
    let by = By { uid: Some(1000), pid: Some(7) };
    let lines = vec![format!("from {before} to {name}")];
    let (guards, wait_ns) = (Vec::new(), wait_s.map(|wait| wait * SECOND));
    Asked { text: text(name), before: text(before), wait_ns, guards, what: What::Applied, by, lines }
}

fn load(disk: &Fake) -> Changes<Fake> {
    let (changes, why) = Changes::load(disk.clone());
    assert_eq!(why, None);
    changes
}

/// What a start runs.
fn runs(disk: &Fake, file: Result<Text, String>, now: &Clock) -> String {
    load(disk).start(file, now).unwrap().text.text
}

#[test]
fn a_change_that_is_confirmed_stays_and_one_that_is_not_goes() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    assert_eq!(changes.start(Ok(text("a")), &at(0)).unwrap(), Start { text: text("a"), instead: None });
    changes.started(&text("a")).unwrap();
    // The change is on disk before it is made: first the file, then the folder.
    disk.0.borrow_mut().steps.clear();
    assert_eq!(changes.begin(asked("b", "a", Some(60)), &at(1)), Ok(1));
    assert_eq!(disk.0.borrow().steps, ["write", "sync", "rename", "folder"]);
    changes.made(&at(1)).unwrap();
    assert_eq!(changes.waits(&at(11)), Some(50 * SECOND));
    assert!(changes.begin(asked("c", "b", None), &at(12)).is_err(), "one change at a time");
    assert_eq!(changes.old(), Some(&text("a")));
    assert_eq!(changes.confirm(&By::default(), &at(20)), Ok(1));
    assert_eq!((changes.waits(&at(20)), changes.previous()), (None, Some(&text("a"))));
    assert!(changes.confirm(&By::default(), &at(21)).is_err());
    // The next change is not confirmed. After its time, and not before, a start runs the old
    // policy.
    changes.begin(asked("c", "b", Some(60)), &at(100)).unwrap();
    changes.made(&at(100)).unwrap();
    drop(changes);
    disk.crash();
    assert_eq!(runs(&disk, Ok(text("a")), &at(159)), "policy c");
    assert_eq!(load(&disk).waits(&at(159)), Some(SECOND));
    assert_eq!(load(&disk).confirm(&By::default(), &at(160)).unwrap_err(), "its time is over, and it is taken back");
    assert_eq!(runs(&disk, Ok(text("c")), &at(160)), "policy b");
    // The file still has the text that was taken back. It is not tried again by itself, but another
    // text is.
    assert_eq!(runs(&disk, Ok(text("c")), &at(1000)), "policy b");
    assert_eq!(runs(&disk, Ok(text("d")), &at(1000)), "policy d");
    let history: Vec<(u64, What)> = load(&disk).history().iter().map(|entry| (entry.number, entry.what)).collect();
    let (applied, confirmed, reverted) = (What::Applied, What::Confirmed, What::Reverted);
    assert_eq!(history, [(1, applied), (1, confirmed), (2, applied), (2, reverted)]);
    // Nor after another change, as the file still has it; but when it was applied and confirmed.
    let mut changes = load(&disk);
    changes.begin(asked("e", "b", None), &at(1001)).unwrap();
    changes.made(&at(1001)).unwrap();
    drop(changes);
    assert_eq!(runs(&disk, Ok(text("c")), &at(1002)), "policy e");
    let mut changes = load(&disk);
    changes.begin(asked("c", "e", Some(60)), &at(1003)).unwrap();
    drop(changes);
    load(&disk).confirm(&By::default(), &at(1004)).unwrap();
    assert_eq!(runs(&disk, Ok(text("c")), &at(1005)), "policy c");
}

#[test]
fn a_file_that_is_wrong_is_answered_with_the_last_good_policy() {
    let disk = Fake::default();
    assert_eq!(load(&disk).start(Err("line 3".to_owned()), &at(0)), Err("line 3".to_owned()));
    load(&disk).started(&text("a")).unwrap();
    let start = load(&disk).start(Err("p.altq is wrong: line 3".to_owned()), &at(9)).unwrap();
    assert_eq!(start.text, text("a"));
    assert_eq!(start.instead.unwrap(), "running last good policy, p.altq is wrong: line 3");
    // The data on disk are damaged: the policy of the file runs, and the damage is reported.
    disk.0.borrow_mut().named = Some(b"{\"schema\"".to_vec());
    let (mut changes, why) = Changes::load(disk);
    assert!(why.is_some());
    assert_eq!(changes.start(Ok(text("a")), &at(0)).unwrap().text, text("a"));
}

/// The wall clock may be set while a change waits; the clock since the boot cannot be set.
#[test]
fn a_clock_that_is_set_changes_no_deadline_until_the_next_boot() {
    let (text, begun, guards, rates) = (text("b"), at(0), Vec::new(), BTreeMap::new());
    let pending = Pending { number: 1, text, begun, wait_ns: 60 * SECOND, guards, rates };
    let set = |unix: i64, boot: u64, id: &str| Clock {
        unix_ns: at(0).unix_ns.saturating_add_signed(unix * SECOND as i64),
        boot_ns: at(0).boot_ns + boot * SECOND,
        boot_id: id.to_owned(),
    };
    for (now, left) in [
        (set(86_400, 10, "one"), Some(50 * SECOND)),
        (set(-86_400, 10, "one"), Some(50 * SECOND)),
        (set(-86_400, 60, "one"), None),
        // After another boot the wall clock decides. If it was set back, the time counts as over.
        (set(20, 0, "two"), Some(40 * SECOND)),
        (set(60, 0, "two"), None),
        (set(-1, 0, "two"), None),
    ] {
        assert_eq!(pending.left(&now), left, "{now:?}");
    }
}

/// From the start on, only the clock since the boot counts, also after a boot between the change
/// and the start: time servers set the wall clock some seconds later.
#[test]
fn a_clock_that_is_set_after_the_start_changes_no_deadline() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    changes.started(&text("a")).unwrap();
    changes.begin(asked("b", "a", Some(600)), &at(0)).unwrap();
    changes.made(&at(0)).unwrap();
    drop(changes);
    let booted = |unix: i64, boot: u64| Clock {
        unix_ns: at(0).unix_ns.saturating_add_signed(unix * SECOND as i64),
        boot_ns: boot * SECOND,
        boot_id: "two".to_owned(),
    };
    let mut changes = load(&disk);
    assert_eq!(changes.start(Ok(text("b")), &booted(100, 5)).unwrap().text, text("b"));
    for unix in [105, 90_000, -90_000] {
        assert_eq!(changes.waits(&booted(unix, 10)), Some(495 * SECOND), "{unix}");
        assert_eq!(changes.until(&booted(unix, 10)), Some(505 * SECOND), "{unix}");
    }
    assert_eq!(changes.waits(&booted(105, 505)), Some(0));
    assert!(changes.confirm(&By::default(), &booted(105, 505)).is_err());
    assert_eq!(changes.confirm(&By::default(), &booted(-90_000, 504)), Ok(1));
}

/// A policy under another name, or one of which only a set rate ends, is no other policy: what ran
/// before it stays known.
#[test]
fn the_policy_before_is_another_one() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    changes.started(&text("a")).unwrap();
    let change = |changes: &mut Changes<Fake>, to: &str, from: &str, wait: Option<u64>| {
        changes.begin(asked(to, from, wait), &at(1)).unwrap();
        changes.made(&at(1)).unwrap();
    };
    change(&mut changes, "b", "a", None);
    // Saved to another file, and started again.
    let saved = Text { name: "/etc/saved.altq".to_owned(), ..text("b") };
    changes.started(&saved).unwrap();
    assert_eq!(changes.previous(), Some(&text("a")));
    // Read again, after a client had set a rate.
    change(&mut changes, "b", "b", None);
    change(&mut changes, "b", "b", Some(60));
    changes.confirm(&By::default(), &at(2)).unwrap();
    drop(changes);
    assert_eq!(load(&disk).previous(), Some(&text("a")));
}

/// After a change was taken back, what ran before it runs: there is nothing to go back to, until
/// altq begins with another policy.
#[test]
fn what_was_taken_back_is_not_rolled_back_again() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    changes.started(&text("a")).unwrap();
    let previous = |changes: &mut Changes<Fake>, force: bool| changes.ask(Ask::Previous { force }, &at(9));
    let of = |name: &str| Answer::Policy { text: text(name) };
    changes.begin(asked("b", "a", None), &at(1)).unwrap();
    changes.made(&at(1)).unwrap();
    changes.begin(asked("c", "b", Some(60)), &at(2)).unwrap();
    changes.made(&at(2)).unwrap();
    assert_eq!(previous(&mut changes, false), of("a"));
    changes.reverted(&at(3), "a guard").unwrap();
    let Answer::Refused { fault } = previous(&mut changes, false) else { panic!("it is not refused") };
    assert!(fault.message.contains("change 2 is taken back already"), "{fault:?}");
    assert_eq!(previous(&mut changes, true), of("a"));
    changes.started(&text("d")).unwrap();
    assert_eq!(previous(&mut changes, false), of("b"));
}

#[test]
fn a_disk_that_is_full_lets_nothing_begin_that_has_to_be_taken_back() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    changes.started(&text("a")).unwrap();
    disk.0.borrow_mut().fails = true;
    let why = changes.begin(asked("b", "a", Some(60)), &at(1)).unwrap_err();
    assert!(why.contains("no space"), "{why}");
    assert_eq!((changes.waits(&at(2)), changes.history().len()), (None, 0));
    // A change without a deadline is made, with a note that it is not kept on disk.
    changes.begin(asked("b", "a", None), &at(1)).unwrap();
    assert!(changes.made(&at(1)).is_err());
    assert_eq!(changes.previous(), Some(&text("a")));
    // A change whose confirmation cannot be written goes on waiting.
    disk.0.borrow_mut().fails = false;
    changes.begin(asked("c", "b", Some(60)), &at(2)).unwrap();
    changes.made(&at(2)).unwrap();
    disk.0.borrow_mut().fails = true;
    assert!(changes.confirm(&By::default(), &at(3)).is_err());
    assert_eq!(changes.waits(&at(3)), Some(59 * SECOND));
}

#[test]
fn what_is_remembered_is_bounded() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    for n in 0..1000_u64 {
        let mut asked = asked("b", "a", None);
        asked.lines = vec!["ä".repeat(10_000); 300];
        changes.begin(asked, &at(n)).unwrap();
        changes.made(&at(n)).unwrap();
    }
    assert!(changes.history().len() <= REMEMBERED);
    assert_eq!(
        changes.history().last().map(|entry| (entry.number, entry.lines.len(), entry.more)),
        Some((1000, 100, 200))
    );
    let bytes = disk.0.borrow().durable.as_ref().unwrap().len();
    assert!(bytes < 2 * BYTES, "{bytes} bytes");
}

/// What users do, and the passing of time.
#[derive(Clone, Debug)]
enum Act {
    Apply { name: char, wait_s: Option<u64> },
    Confirm,
    Refused(char),
    Pass(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let name = prop::char::range('b', 'e');
    let one = prop_oneof![
        (name.clone(), prop::option::of(1_u64..40)).prop_map(|(name, wait_s)| Act::Apply { name, wait_s }),
        Just(Act::Confirm),
        name.prop_map(Act::Refused),
        (1_u64..30).prop_map(Act::Pass),
    ];
    prop::collection::vec(one, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The process dies after any step of the disk, and starts anew. Then it runs a whole policy
    /// that was asked for: the one that was confirmed last, or the one that waits. It never runs
    /// one whose time was over, or one that was refused.
    #[test]
    fn no_crash_leaves_a_half_state(acts in acts(), dies in 0_usize..60, early: bool, rest in 0_u64..60) {
        let disk = Fake::default();
        let mut changes = load(&disk);
        changes.started(&text("a")).unwrap();
        disk.0.borrow_mut().left = Some(dies);
        disk.0.borrow_mut().early = early;
        // What a start may run: `good` policies, and until its deadline the one that waits.
        let (mut good, mut waiting): (Vec<String>, Option<(String, u64)>) = (vec!["a".to_owned()], None);
        let (mut running, mut now) = ("a".to_owned(), 0);
        let dead = |result: Result<(), String>| result.is_err_and(|error| error.contains(DEAD));
        'life: for act in acts {
            match act {
                Act::Pass(seconds) => now += seconds,
                Act::Confirm => match changes.confirm(&By::default(), &at(now)) {
                    Ok(_) => {
                        good = vec![running.clone()];
                        waiting = None;
                    }
                    Err(error) if error.contains(DEAD) => {
                        // There was no answer, so both policies are possible.
                        good.push(running.clone());
                        break 'life;
                    }
                    Err(_) => {}
                },
                Act::Apply { name, wait_s } => {
                    let name = name.to_string();
                    let before = running.clone();
                    match changes.begin(asked(&name, &before, wait_s), &at(now)) {
                        Err(error) if error.contains(DEAD) => {
                            waiting = wait_s.map(|wait| (name, now + wait));
                            break 'life;
                        }
                        Err(_) => continue,
                        Ok(_) => {}
                    }
                    running.clone_from(&name);
                    match wait_s {
                        Some(wait) => waiting = Some((name.clone(), now + wait)),
                        None => good.push(name.clone()),
                    }
                    if dead(changes.made(&at(now))) {
                        break 'life;
                    }
                    if wait_s.is_none() {
                        good = vec![name];
                    }
                }
                Act::Refused(name) => {
                    let name = name.to_string();
                    match changes.begin(asked(&name, &running, Some(5)), &at(now)) {
                        Err(error) if error.contains(DEAD) => {
                            waiting = Some((name, now + 5));
                            break 'life;
                        }
                        Err(_) => continue,
                        Ok(_) => {}
                    }
                    if dead(changes.abort()) {
                        waiting = Some((name, now + 5));
                        break 'life;
                    }
                }
            }
            // The deadline comes while the process lives.
            if changes.waits(&at(now)) == Some(0) {
                let old = changes.old().unwrap().text.trim_start_matches("policy ").to_owned();
                prop_assert!(good.contains(&old), "{old} of {good:?}");
                running = old;
                waiting = None;
                if dead(changes.reverted(&at(now), "late")) {
                    break 'life;
                }
            }
        }
        drop(changes);
        disk.crash();
        now += rest;
        // The file is wrong, so what is kept decides.
        let mut changes = load(&disk);
        let start = changes.start(Err("wrong".to_owned()), &at(now)).unwrap();
        let runs = start.text.text.trim_start_matches("policy ").to_owned();
        let waits = changes.waits(&at(now)).is_some();
        let fits = match &waiting {
            Some((name, until)) if waits => *name == runs && now < *until,
            _ => !waits && good.contains(&runs),
        };
        prop_assert!(fits, "{runs}, waits {waits}; good {good:?}, waiting {waiting:?}, now {now}");
        // Another start changes nothing.
        drop(changes);
        disk.crash();
        prop_assert_eq!(load(&disk).start(Err("wrong".to_owned()), &at(now)).unwrap().text, start.text);
    }
}
