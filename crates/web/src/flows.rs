//! The largest flows of the classes that somebody looks at, as `altq top` shows them.
//!
//! A browser asks for those of one class. The thread that answers browsers notes the class here,
//! the one that asks altq asks for it once a second, and what altq says is the answer to whoever
//! asks next. So altq is asked only while somebody looks, for [`MOST`] classes at most, and for
//! [`EACH`] of them in a second: where more are looked at, each comes in its turn.

use std::time::{Duration, Instant};

use crate::Body;

/// Classes whose flows are known at a time.
pub const MOST: usize = 16;
/// Classes that altq is asked for at a time.
pub const EACH: usize = 4;
/// Who has not asked for so long does not look any more.
const LOOKS: Duration = Duration::from_secs(10);

/// What altq says of a class: a document `altq.top/1`, or why there is none.
pub type Said = Result<Body, String>;

/// The classes that somebody looks at.
#[derive(Debug, Default)]
pub struct Flows {
    wanted: Vec<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    link: String,
    class: String,
    /// When a browser asked last.
    wanted: Instant,
    /// When altq was asked last.
    asked: Option<Instant>,
    said: Option<Said>,
}

impl Flows {
    /// What altq has said of a class, for somebody who looks at it now; `None` if it was not asked
    /// yet.
    pub fn of(&mut self, link: &str, class: &str, now: Instant) -> Option<Said> {
        if let Some(known) = self.wanted.iter_mut().find(|known| known.link == link && known.class == class) {
            known.wanted = now;
            return known.said.clone();
        }
        if self.wanted.len() >= MOST
            && let Some((at, _)) = self.wanted.iter().enumerate().min_by_key(|(_, known)| known.wanted)
        {
            self.wanted.swap_remove(at);
        }
        let (link, class) = (link.to_owned(), class.to_owned());
        self.wanted.push(Wanted { link, class, wanted: now, asked: None, said: None });
        None
    }

    /// The links and classes that altq is to be asked for now: those first for which it was not
    /// asked for longest. What nobody looks at any more is forgotten.
    pub fn due(&mut self, now: Instant) -> Vec<(String, String)> {
        self.wanted.retain(|known| now.saturating_duration_since(known.wanted) < LOOKS);
        self.wanted.sort_by_key(|known| known.asked);
        let due = self.wanted.iter_mut().take(EACH);
        due.map(|known| {
            known.asked = Some(now);
            (known.link.clone(), known.class.clone())
        })
        .collect()
    }

    /// What altq says of a class.
    pub fn say(&mut self, link: &str, class: &str, said: Said) {
        if let Some(known) = self.wanted.iter_mut().find(|known| known.link == link && known.class == class) {
            known.said = Some(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Said {
        Ok(text.as_bytes().into())
    }

    #[test]
    fn who_looks_gets_what_was_said_last() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        let at = |second: u64| now + Duration::from_secs(second);
        assert_eq!(flows.of("wan", "web", at(0)), None);
        assert_eq!(flows.due(at(1)), [("wan".to_owned(), "web".to_owned())]);
        flows.say("wan", "web", body("a"));
        assert_eq!(flows.of("wan", "web", at(1)), Some(body("a")));
        flows.say("wan", "web", Err("no worker shapes".to_owned()));
        flows.say("lan", "web", body("nobody has asked"));
        assert_eq!(flows.of("wan", "web", at(2)), Some(Err("no worker shapes".to_owned())));
        assert_eq!(flows.of("lan", "web", at(2)), None);
        // Nobody looks at the first one for ten seconds.
        assert_eq!(flows.of("lan", "web", at(11)), None);
        assert_eq!(flows.due(at(12)), [("lan".to_owned(), "web".to_owned())]);
        assert_eq!(flows.of("wan", "web", at(12)), None);
        assert_eq!(flows.due(at(22)).len(), 0);
    }

    #[test]
    fn many_classes_come_in_turn_and_the_oldest_goes() {
        let (mut flows, now) = (Flows::default(), Instant::now());
        let at = |ms: u64| now + Duration::from_millis(ms);
        for class in 0..20 {
            assert_eq!(flows.of("wan", &format!("c{class}"), at(class)), None);
        }
        // Those that asked first are gone; the others are asked for four at a time.
        let mut asked: Vec<String> = Vec::new();
        for turn in 0..4 {
            asked.extend(flows.due(at(100 + turn)).into_iter().map(|(_, class)| class));
        }
        asked.sort();
        let mut expected: Vec<String> = (4..20).map(|class| format!("c{class}")).collect();
        expected.sort();
        assert_eq!(asked, expected);
        assert_eq!(flows.due(at(200)).len(), EACH);
    }
}
