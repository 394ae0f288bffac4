//! The taps of running links, at most one for each.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use altq_config::{Link, Path};
use altq_control::rights::Peer;
use altq_control::tap::{Tap, Tapped};
use altq_control::{Code, Fault};
use altq_dataplane::tap::{Ended, Tapping, Wanted};

use super::answers::who;
use super::live::Live;

/// The taps, by link.
#[derive(Default)]
pub struct Taps {
    /// The file for the next tap.
    given: Option<OwnedFd>,
    taps: BTreeMap<String, Tapping>,
}

impl Taps {
    /// Takes the file for the tap that begins next.
    pub fn give(&mut self, file: OwnedFd) {
        self.given = Some(file);
    }

    /// Answers a client.
    ///
    /// # Errors
    /// There is no such link, class or tap; the link is tapped already; or the kernel executes it.
    pub fn answer(&mut self, live: &Live, tap: Tap, peer: &Peer) -> Result<Tapped, Fault> {
        match tap {
            Tap::Begin { link, class, size_bytes, snaplen } => {
                let file = self.given.take().ok_or_else(|| Fault::usage("no file came along with the request"))?;
                let wanted = wanted(live, &link, class.as_deref(), size_bytes, snaplen)?;
                if self.taps.get(&link).is_some_and(|tap| tap.tapped().ended.is_none()) {
                    let fault = Fault::refused(format!("link `{link}` is tapped already"));
                    return Err(fault.help("end the other `altq tap` first"));
                }
                // The old tap must be dropped first: when it is dropped, it removes the loop's tap,
                // which could be the new one.
                self.taps.remove(&link);
                let tap = live.tap(&link, wanted, File::from(file)).map_err(|error| failed(&link, &error))?;
                let tap = tap.ok_or_else(|| failed(&link, &"it has no loop"))?;
                let of = class.map_or(String::new(), |class| format!(", class {class}"));
                eprintln!("altq run: link {link}{of} is tapped; asked by {}", who(peer));
                let tapped = told(&tap);
                self.taps.insert(link, tap);
                Ok(tapped)
            }
            Tap::Look(link) => self.of(&link).map(told),
            Tap::End(link) => {
                let tap = self.of(&link)?;
                tap.end();
                Ok(told(tap))
            }
        }
    }

    fn of(&self, link: &str) -> Result<&Tapping, Fault> {
        self.taps.get(link).ok_or_else(|| Fault::usage(format!("link `{link}` was not tapped")))
    }
}

fn failed(link: &str, why: &dyn std::fmt::Display) -> Fault {
    Fault::new(Code::Failed, format!("link `{link}` cannot be tapped: {why}"))
}

/// What a tap of a link must copy.
fn wanted(live: &Live, name: &str, class: Option<&str>, size: u64, snaplen: u32) -> Result<Wanted, Fault> {
    let state = live.lock();
    let Some(link) = state.roster.link(name) else {
        let fault = Fault::usage(format!("no link `{name}` runs here"));
        return Err(fault.help(format!("there is {}", state.names().join(", "))));
    };
    let path = link.path();
    if path == Some(Path::Kernel) {
        let message = format!("the kernel executes link `{name}`, so its packets do not pass altq");
        return Err(Fault::new(Code::Unsupported, message).help("tcpdump copies what leaves its interface"));
    }
    let classes = class.map(|class| below(link, class)).transpose()?;
    Ok(Wanted { classes, snaplen: snaplen as usize, size, made_up: path == Some(Path::Nfqueue) })
}

/// By number: whether a class is the one of this name or below it.
fn below(link: &Link, class: &str) -> Result<Vec<bool>, Fault> {
    let Some(top) = link.class(class).filter(|_| !class.is_empty()) else {
        let fault = Fault::usage(format!("link `{}` has no class `{class}`", link.name));
        return Err(fault.help("`altq stat` lists them"));
    };
    let mut found = vec![false; link.spec.classes.len()];
    // In a link that was changed while it runs a class may stand before its parent.
    let (children, mut open) = (link.children(), vec![top]);
    while let Some(class) = open.pop() {
        if let Some(found) = found.get_mut(class as usize) {
            *found = true;
        }
        open.extend(children.get(class as usize).into_iter().flatten());
    }
    Ok(found)
}

fn told(tap: &Tapping) -> Tapped {
    let tapped = tap.tapped();
    let ended = tapped.ended.map(|ended| match ended {
        Ended::Asked => "asked".to_owned(),
        Ended::Full => "size".to_owned(),
        Ended::Closed => "closed".to_owned(),
        Ended::Left => "left".to_owned(),
        Ended::Failed(why) => why,
    });
    let (packets, bytes, missed) = (tapped.packets, tapped.bytes, tapped.missed);
    Tapped { running: ended.is_none(), packets, bytes, missed, ended }
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::*;

    #[test]
    fn a_class_is_tapped_with_all_below_it() {
        let text =
            "link l { rate 1Mbit/s  scheduler cbq  class a { share 50%  class b { share 20% }  class c { share 30% } }
            class d { share 50%  default } }";
        let policy = parse_str(text, "p.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let link = &policy.links[0];
        let names = |class: &str| -> Vec<&str> {
            let inside = below(link, class).unwrap();
            link.classes
                .iter()
                .zip(inside)
                .filter(|(_, inside)| *inside)
                .map(|(class, _)| class.name.as_str())
                .collect()
        };
        assert_eq!([names("a"), names("b"), names("d")], [vec!["a", "b", "c"], vec!["b"], vec!["d"]]);
        assert_eq!(names("l").len(), 5, "the link itself is the class above all");
        assert!(below(link, "e").is_err() && below(link, "").is_err());
    }

    /// A change may give a class the lowest free number, and then move a class with a lower one
    /// below it.
    #[test]
    fn a_class_that_stands_before_its_parent_is_tapped_with_it() {
        let text = "link l { rate 1Mbit/s  scheduler cbq
            class a { share 20% }  class b { share 30% }  class c { share 50%  default } }";
        let policy = parse_str(text, "p.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let mut link = policy.links[0].clone();
        let at = |name: &str| link.class(name).unwrap();
        let (a, b, c) = (at("a"), at("b"), at("c"));
        link.spec.classes[a as usize].parent = b;
        link.spec.classes[b as usize].parent = c;
        let inside = below(&link, "c").unwrap();
        assert!([a, b, c].iter().all(|class| inside[*class as usize]) && !inside[0]);
    }
}
