//! A worker asks the one that keeps changes, and ends between two of its questions.

use super::*;

/// A question as it comes on the wire, and the answer as it goes back.
fn wired(changes: &mut Changes<Fake>, ask: Ask, now: &Clock) -> Answer {
    let question = serde_json::to_vec(&Question { keep: 7, ask }).unwrap();
    assert!(question.starts_with(b"{\"keep\":"));
    let question: Question = serde_json::from_slice(&question).unwrap();
    let reply = serde_json::to_vec(&Reply { kept: question.keep, answer: changes.ask(question.ask, now) }).unwrap();
    assert!(reply.starts_with(b"{\"kept\":"));
    serde_json::from_slice::<Reply>(&reply).unwrap().answer
}

fn begin(name: &str, before: &str, wait_s: Option<u64>) -> Ask {
    let Asked { text, before, wait_ns, guards, what, by, lines } = asked(name, before, wait_s);
    Ask::Begin { text, before, wait_ns, guards, what, by, lines }
}

/// What a start runs, and for how long it waits, after everything was killed.
fn after_a_crash(disk: &Fake, now: &Clock) -> (Text, Option<Nanos>) {
    disk.crash();
    let mut changes = load(disk);
    let start = changes.start(Err("wrong".to_owned()), now).unwrap();
    (start.text, changes.waits(now))
}

/// It ends after it has asked to begin, and after it has said that the change is made. In between,
/// its supervisor aborts the change in its place, and nothing is left of it. What was asked and not
/// aborted when everything was killed waits, whether or not a worker has made it.
#[test]
fn a_worker_that_ends_between_two_questions_leaves_one_whole_policy() {
    for wait_s in [None, Some(60)] {
        for (made, aborted) in [(false, false), (false, true), (true, false), (true, true)] {
            let disk = Fake::default();
            let mut changes = load(&disk);
            changes.started(&text("a")).unwrap();
            assert_eq!(wired(&mut changes, begin("b", "a", wait_s), &at(1)), Answer::Done { number: 1, note: None });
            if made {
                assert!(matches!(wired(&mut changes, Ask::Made, &at(1)), Answer::Done { .. }));
            }
            if aborted {
                // After the change was made there is nothing to abort.
                assert!(matches!(wired(&mut changes, Ask::Abort, &at(2)), Answer::Done { note: None, .. }));
            }
            let stands = made || wait_s.is_some() && !aborted;
            let waits = wait_s.filter(|_| stands).map(|wait| (wait - 2) * SECOND);
            assert_eq!(changes.waits(&at(3)), waits);
            assert_eq!(changes.history().len(), usize::from(stands), "{wait_s:?} {made} {aborted}");
            if waits.is_none() && (made || aborted) {
                // Another change may follow. A number that was on disk is not given again.
                let answer = wired(&mut changes, begin("c", if stands { "b" } else { "a" }, Some(5)), &at(3));
                let number = if made || wait_s.is_some() { 2 } else { 1 };
                assert_eq!(answer, Answer::Done { number, note: None });
                assert!(matches!(wired(&mut changes, Ask::Abort, &at(3)), Answer::Done { .. }));
            }
            drop(changes);
            let expected = (if stands { text("b") } else { text("a") }, waits);
            assert_eq!(after_a_crash(&disk, &at(3)), expected, "{wait_s:?} {made} {aborted}");
        }
    }
}

/// What is not asked in its turn is refused, and changes nothing.
#[test]
fn questions_out_of_turn_are_refused() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    changes.started(&text("a")).unwrap();
    let steps = disk.0.borrow().steps.len();
    let refused = |answer: &Answer| matches!(answer, Answer::Refused { .. });
    for ask in [Ask::Confirm { by: By::default() }, Ask::Old, Ask::Previous { force: false }] {
        assert!(refused(&wired(&mut changes, ask.clone(), &at(1))), "{ask:?}");
    }
    // Nothing was begun.
    for ask in [Ask::Made, Ask::Abort] {
        assert_eq!(wired(&mut changes, ask, &at(1)), Answer::Done { number: 0, note: None });
    }
    assert_eq!((disk.0.borrow().steps.len(), changes.history().len()), (steps, 0));
    wired(&mut changes, begin("b", "a", Some(60)), &at(1));
    assert!(refused(&wired(&mut changes, begin("c", "b", None), &at(2))), "one change at a time");
    assert_eq!(wired(&mut changes, Ask::Old, &at(2)), Answer::Old { text: text("a"), rates: BTreeMap::new() });
    // It is not made yet, so it cannot be confirmed.
    assert!(refused(&wired(&mut changes, Ask::Confirm { by: By::default() }, &at(2))));
    wired(&mut changes, Ask::Made, &at(2));
    let confirmed = wired(&mut changes, Ask::Confirm { by: By::default() }, &at(3));
    assert_eq!(confirmed, Answer::Done { number: 1, note: None });
}

/// The rates that clients had set are kept with the change that waits, also after a crash. They
/// belong to that change only.
#[test]
fn rates_that_were_set_come_back_with_the_policy() {
    let disk = Fake::default();
    let mut changes = load(&disk);
    changes.started(&text("a")).unwrap();
    let rates = BTreeMap::from([("wan".to_owned(), 50_000_000)]);
    let told = wired(&mut changes, Ask::Rates { rates: rates.clone() }, &at(1));
    assert!(matches!(told, Answer::Done { note: None, .. }), "{told:?}");
    wired(&mut changes, begin("b", "a", Some(60)), &at(1));
    wired(&mut changes, Ask::Made, &at(1));
    let old = Answer::Old { text: text("a"), rates };
    assert_eq!(wired(&mut changes, Ask::Old, &at(2)), old);
    drop(changes);
    assert_eq!(after_a_crash(&disk, &at(3)), (text("b"), Some(58 * SECOND)));
    let mut changes = load(&disk);
    assert_eq!(wired(&mut changes, Ask::Old, &at(3)), old);
    wired(&mut changes, Ask::Reverted { why: "late".to_owned() }, &at(4));
    // The next change begins without rates that were set.
    wired(&mut changes, begin("c", "a", Some(60)), &at(5));
    assert_eq!(wired(&mut changes, Ask::Old, &at(6)), Answer::Old { text: text("a"), rates: BTreeMap::new() });
}
