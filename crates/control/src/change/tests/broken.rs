//! A disk that fails while the process lives on.

use super::*;

/// The steps of a write, each of which fails once or for good, and whether a rename that was not
/// brought to the disk outlives the crash that follows.
fn failures() -> impl Iterator<Item = (usize, usize, bool)> {
    let ways = [(1, false), (1, true), (usize::MAX, false), (usize::MAX, true)];
    (0..4).flat_map(move |step| ways.map(|(many, early)| (step, many, early)))
}

/// What was refused because the disk failed does not run after a crash, whichever step it was. Only
/// where the disk failed after the last rename, and then takes nothing back, a start may find the
/// change: it waits then, and goes at its deadline.
#[test]
fn an_error_at_any_step_of_a_change_leaves_the_policy_before() {
    for (step, many, early) in failures() {
        let disk = Fake::default();
        disk.0.borrow_mut().early = early;
        let mut changes = load(&disk);
        changes.started(&text("a")).unwrap();
        disk.breaks(step, many);
        let why = changes.begin(asked("b", "a", Some(60)), &at(1)).unwrap_err();
        assert!(why.contains("no space"), "{why}");
        assert_eq!((changes.waits(&at(2)), changes.history().len()), (None, 0));
        drop(changes);
        disk.crash();
        let mut changes = load(&disk);
        let start = changes.start(Ok(text("a")), &at(2)).unwrap();
        let found = step == 3 && many > 1 && early;
        let expected = if found { (text("b"), Some(59 * SECOND)) } else { (text("a"), None) };
        assert_eq!((start.text, changes.waits(&at(2))), expected, "step {step}, {many} of them, {early}");
        assert_eq!(runs(&disk, Ok(text("a")), &at(61)), "policy a");
    }
}

/// A confirmation that the disk did not take is none: the change waits on, here and after a crash,
/// and can be confirmed when the disk works again.
#[test]
fn an_error_at_any_step_of_a_confirmation_leaves_the_change_waiting() {
    for (step, many, early) in failures() {
        let disk = Fake::default();
        disk.0.borrow_mut().early = early;
        let mut changes = load(&disk);
        changes.started(&text("a")).unwrap();
        changes.begin(asked("b", "a", Some(60)), &at(1)).unwrap();
        changes.made(&at(1)).unwrap();
        disk.breaks(step, many);
        assert!(changes.confirm(&By::default(), &at(2)).is_err());
        assert_eq!((changes.waits(&at(2)), changes.old()), (Some(59 * SECOND), Some(&text("a"))));
        if many == 1 {
            assert_eq!(changes.confirm(&By::default(), &at(3)), Ok(1));
            assert_eq!((changes.waits(&at(3)), changes.history().len()), (None, 2));
            continue;
        }
        drop(changes);
        disk.crash();
        let mut changes = load(&disk);
        let found = step == 3 && early;
        let expected = if found { None } else { Some(58 * SECOND) };
        // The file is wrong, so what is kept decides.
        let start = changes.start(Err("wrong".to_owned()), &at(3)).unwrap();
        assert_eq!((start.text, changes.waits(&at(3))), (text("b"), expected), "step {step}, {early}");
        let later = runs(&disk, Err("wrong".to_owned()), &at(62));
        assert_eq!(later, if found { "policy b" } else { "policy a" });
    }
}

/// What a writer that was killed has left beside the file is not read, and the next write takes its
/// place. A folder that cannot be made is an error that names it.
#[test]
fn half_a_file_beside_the_file_changes_nothing() {
    let folder = std::env::temp_dir().join(format!("altq-change-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let disk = disk::InFolder::new(&folder, "p.json");
    let (mut changes, why) = Changes::load(disk.clone());
    assert_eq!(why, None);
    changes.started(&text("a")).unwrap();
    let whole = std::fs::read(disk.path()).unwrap();
    std::fs::write(folder.join("p.json.new"), &whole[..whole.len() / 2]).unwrap();
    let (mut changes, why) = Changes::load(disk.clone());
    assert_eq!(why, None);
    assert_eq!(changes.start(Err("wrong".to_owned()), &at(0)).unwrap().text, text("a"));
    changes.begin(asked("b", "a", Some(60)), &at(1)).unwrap();
    assert!(!folder.join("p.json.new").exists());
    let (changes, why) = Changes::load(disk);
    assert_eq!((changes.waits(&at(11)), why), (Some(50 * SECOND), None));
    let no_folder = folder.join("p.json");
    let (mut changes, _) = Changes::load(disk::InFolder::new(&no_folder, "q.json"));
    let why = changes.started(&text("a")).unwrap_err();
    assert!(why.contains("p.json"), "{why}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The policy that runs without a doubt, and the one that waits and until when.
type Stands = (String, Option<(String, u64)>);

/// What is known, and what may be on disk.
#[derive(Debug)]
struct Model {
    good: String,
    waiting: Option<(String, u64)>,
    there: Vec<Stands>,
}

impl Model {
    /// A change that counts only if the disk takes it.
    fn tried(&mut self, result: &Result<(), String>, new: Stands) {
        match result {
            Ok(()) => self.made(result, new),
            Err(why) if why.contains("no space") => self.there.push(new),
            // Something else stood in its way, before the disk was asked.
            Err(_) => {}
        }
    }

    /// A change that stands whether the disk takes it or not.
    fn made(&mut self, result: &Result<(), String>, new: Stands) {
        if result.is_ok() {
            self.there.clear();
        }
        self.there.push(new.clone());
        (self.good, self.waiting) = new;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The disk fails for some steps in a row while the process lives on, and then everything is
    /// killed. A start runs a policy that was asked for, whole: as the disk took it last, or as it
    /// was asked for while the disk failed; and what waits there goes at its own deadline.
    #[test]
    fn no_error_leaves_a_half_state(
        acts in acts(), after in 0_usize..60, many in 1_usize..12, early: bool, rest in 0_u64..60
    ) {
        let disk = Fake::default();
        disk.0.borrow_mut().early = early;
        let mut changes = load(&disk);
        changes.started(&text("a")).unwrap();
        disk.breaks(after, many);
        let mut model = Model { good: "a".to_owned(), waiting: None, there: vec![("a".to_owned(), None)] };
        let (mut running, mut now) = ("a".to_owned(), 0);
        for act in acts {
            match act {
                Act::Pass(seconds) => now += seconds,
                Act::Confirm => {
                    let result = changes.confirm(&By::default(), &at(now)).map(drop);
                    model.tried(&result, (running.clone(), None));
                }
                Act::Apply { name, wait_s } => {
                    let name = name.to_string();
                    let begun = changes.begin(asked(&name, &running, wait_s), &at(now)).map(drop);
                    if let Some(wait) = wait_s {
                        model.tried(&begun, (running.clone(), Some((name.clone(), now + wait))));
                    }
                    if begun.is_err() {
                        continue;
                    }
                    running.clone_from(&name);
                    let made = changes.made(&at(now));
                    if wait_s.is_none() {
                        model.made(&made, (name, None));
                    }
                }
                Act::Refused(name) => {
                    let name = name.to_string();
                    let begun = changes.begin(asked(&name, &running, Some(5)), &at(now)).map(drop);
                    model.tried(&begun, (running.clone(), Some((name, now + 5))));
                    if begun.is_ok() {
                        let aborted = changes.abort();
                        model.made(&aborted, (running.clone(), None));
                    }
                }
            }
            if changes.waits(&at(now)) == Some(0) {
                let old = changes.old().unwrap().text.trim_start_matches("policy ").to_owned();
                prop_assert_eq!(&old, &model.good);
                running.clone_from(&old);
                let reverted = changes.reverted(&at(now), "late");
                model.made(&reverted, (old, None));
            }
            prop_assert_eq!(changes.waits(&at(now)).is_some(), model.waiting.is_some());
        }
        drop(changes);
        disk.crash();
        now += rest;
        let mut changes = load(&disk);
        let start = changes.start(Err("wrong".to_owned()), &at(now)).unwrap();
        let runs = start.text.text.trim_start_matches("policy ").to_owned();
        let waits = changes.waits(&at(now)).is_some();
        let fits = model.there.iter().any(|(good, waiting)| match waiting {
            Some((name, until)) if now < *until => waits && *name == runs,
            _ => !waits && *good == runs,
        });
        prop_assert!(fits, "{runs}, waits {waits}, at {now}; {model:?}");
    }
}
