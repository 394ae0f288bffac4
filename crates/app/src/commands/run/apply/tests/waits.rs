//! Changes that wait, one after another, where the one before could not be taken back. altq tries
//! that again after ten seconds; the next change must not wait for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;

use altq_dataplane::Options;
use altq_dataplane::shaper::Tuning;

use super::*;
use crate::commands::run::keep::{Keep, begin};
use crate::commands::run::live::Known;
use crate::commands::run::{Args, choose};

const POLICY: &str = "link wan { device bridge a b  rate 100Mbit/s  scheduler cbq
    class calls { share 20% }  class rest { share 40%  default } }";

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    args: Args,
}

fn native(text: &str) -> Text {
    Text { name: "other.altq".to_owned(), language: "native".to_owned(), text: text.to_owned() }
}

/// A policy that runs, but for its loops, and the folder in which its changes are kept.
struct Runs {
    live: Live,
    folder: PathBuf,
}

impl Runs {
    fn new(name: &str) -> Runs {
        let folder = std::env::temp_dir().join(format!("altq-waits-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (file, state) = (folder.join("p.altq"), folder.join("state"));
        std::fs::write(&file, POLICY).unwrap();
        let words: [OsString; 4] = ["altq".into(), file.into(), "--state".into(), state.into()];
        let Program { args } = <Program as clap::Parser>::parse_from(words);
        let (policy, told, keeper) = begin(&args).unwrap();
        let links = choose(&policy, None).unwrap();
        // No loop begins, and changes reach none.
        let running = altq_dataplane::run(&[], Options::default()).unwrap();
        let keep = Keep::Here(Box::new(Mutex::new(keeper)));
        let known = Known { course: Course::new(told, 0), keep, only: None };
        let live = Live::new(&links, running.reach().clone(), Tuning::default(), known).unwrap();
        Runs { live, folder }
    }

    /// A change waits whose time is over, as far as the process that shapes knows.
    fn has_one_overdue(&self) {
        self.live.lock().course.wait(1, Vec::new(), 0);
    }

    /// Makes a change whose time is over at once, and checks that it is taken back when that is
    /// looked at next.
    fn takes_a_change_back(&self) {
        let text = native(&POLICY.replace("share 20%", "share 25%"));
        let (policy, what, by, guards) = (read(&text), What::Applied, By::default(), Vec::new());
        let wanted = Wanted { text, policy, link: None, evict: false, wait_ns: Some(1), guards, what, by, based: None };
        let made = make(&self.live, None, wanted).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(made.number.is_some());
        assert_eq!(self.live.lock().course.left(), Some(0));
        tick(&self.live, None, None);
        let state = self.live.lock();
        assert_eq!((state.course.left(), state.course.text.text.as_str()), (None, POLICY));
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The keeper knows of no change, because it was confirmed and the answer came too late. So there
/// is nothing to take back, and nothing to try again.
#[test]
fn a_change_that_was_confirmed_meanwhile_is_not_tried_again() {
    let runs = Runs::new("confirmed");
    runs.has_one_overdue();
    tick(&runs.live, None, None);
    let state = runs.live.lock();
    assert_eq!((state.course.left(), state.try_again), (None, None));
    drop(state);
    runs.takes_a_change_back();
}

/// What ran before is not understood, so the change stays until somebody confirms it. The next one
/// is taken back as soon as its own time is over.
#[test]
fn a_change_does_not_wait_for_another_one_that_could_not_be_taken_back() {
    let runs = Runs::new("unread");
    let (text, before) = (native(POLICY), native("link wan { nonsense"));
    let (what, by, guards, lines) = (What::Applied, By::default(), Vec::new(), Vec::new());
    let begins = Ask::Begin { text, before, wait_ns: Some(600 * SECOND), guards, what, by, lines };
    for ask in [begins, Ask::Made] {
        runs.live.keep.ask(ask).unwrap_or_else(|fault| panic!("{fault}"));
    }
    runs.has_one_overdue();
    tick(&runs.live, None, None);
    let state = runs.live.lock();
    assert!(state.course.left() == Some(0) && state.try_again.is_some(), "it is tried again");
    drop(state);
    confirmed(&runs.live, &Peer::default()).unwrap_or_else(|fault| panic!("{fault}"));
    runs.takes_a_change_back();
}
