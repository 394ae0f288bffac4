//! Which class a packet gets: the page asks the policy that runs, as `altq explain` asks a file.
//!
//! The thread that answers browsers notes that somebody asks. The one that asks altq then fetches
//! the policy, and looks every few seconds whether another one runs, as long as somebody asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use altq_config::diagnostic::Sources;
use altq_config::explain::{Explainer, Rules};
use altq_config::{Failed, Language, Link, Packet, Policy, parse_alone, render};
use altq_control::request::change::{Running as Text, hash};

/// The longest text of a packet, in bytes.
const LONGEST: usize = 1000;
/// Time between two looks whether another policy runs.
const AGAIN: Duration = Duration::from_secs(2);
/// Who has not asked for so long does not look any more.
const LOOKS: Duration = Duration::from_secs(60);

/// What is known of the policy that runs: the policy, or why it is not known.
pub type Known = Result<Arc<Running>, String>;

/// The policy that runs, as long as somebody asks about packets.
#[derive(Debug, Default)]
pub struct Asked {
    /// When a browser asked last.
    wanted: Option<Instant>,
    /// When altq was asked last.
    asked: Option<Instant>,
    known: Option<Known>,
}

impl Asked {
    /// The policy, for somebody who asks about a packet now; `None` if altq was not asked yet.
    pub fn policy(&mut self, now: Instant) -> Option<Known> {
        self.wanted = Some(now);
        self.known.clone()
    }

    /// Whether altq is to be asked now. What nobody needs any more is forgotten.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if self.wanted.is_none_or(|wanted| now.saturating_duration_since(wanted) >= LOOKS) {
            *self = Asked::default();
            return false;
        }
        let due = self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= AGAIN);
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// The policy that altq named last.
    pub fn known(&self) -> Option<Known> {
        self.known.clone()
    }

    /// What altq has answered.
    pub fn say(&mut self, known: Known) {
        self.known = Some(known);
    }
}

/// A policy that runs.
#[derive(Debug)]
pub struct Running {
    text: String,
    language: String,
    policy: Policy,
    /// By link, its rules.
    rules: Vec<Rules>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// The packet, or the link's name, is wrong: the messages.
    Wrong(String),
    /// The policy has no such link.
    NoLink,
}

impl Running {
    /// Reads the text of the policy.
    ///
    /// # Errors
    /// If it cannot be read, why.
    pub fn new(text: Text) -> Result<Running, String> {
        let language: Language = text.language.parse()?;
        // The text may be that of another file, or put together: then lines of that file are not
        // its lines.
        let is_of_file = !text.put_together && text.file_hash.as_ref() == Some(&hash(text.text.as_bytes()));
        let read = parse_alone(&text.text, if is_of_file { &text.file } else { "the running policy" }, language);
        let policy = read.map_err(|failed| {
            let Failed { diagnostics, sources } = *failed;
            render(&diagnostics, &sources, false)
        })?;
        let rules = policy.links.iter().map(Rules::with_limits).collect();
        Ok(Running { text: text.text, language: text.language, policy, rules })
    }

    /// True if this is the policy of that text.
    pub fn is(&self, text: &Text) -> bool {
        (&self.text, &self.language) == (&text.text, &text.language)
    }

    /// The class of a packet and why, as `altq.explain/1`. `link` is the one that is meant if the
    /// packet names none.
    ///
    /// # Errors
    /// If the packet is wrong, or there is no such link.
    pub fn explain(&self, link: Option<&str>, packet: &str) -> Result<Vec<u8>, Refused> {
        if packet.len() > LONGEST {
            return Err(Refused::Wrong(format!("the packet has more than {LONGEST} bytes")));
        }
        let mut texts = Sources::default();
        let source = texts.add("packet".into(), packet.to_owned());
        let packet = Packet::read(&texts, source).map_err(|wrong| Refused::Wrong(render(&wrong, &texts, false)))?;
        let name = packet.link().or(link);
        let named = |link: &Link| name.is_none_or(|name| link.name == name);
        let at = self.policy.links.iter().position(named).ok_or(Refused::NoLink)?;
        let (Some(link), Some(rules)) = (self.policy.links.get(at), self.rules.get(at)) else {
            return Err(Refused::NoLink);
        };
        let explained = Explainer::new(&self.policy.sources, link, rules).packet(&packet);
        serde_json::to_vec(&explained).map_err(|error| Refused::Wrong(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text {
            schema: Text::SCHEMA.to_owned(),
            language: "native".to_owned(),
            text: text.to_owned(),
            file: "/etc/altq/wan.altq".to_owned(),
            file_hash: Some(hash(text.as_bytes())),
            put_together: false,
        }
    }

    const POLICY: &str = "link wan {
    rate 10Mbit/s
    scheduler cbq
    class voice { share 20% }
    class rest  { share 80%  default }
    match dscp ef -> voice
}
link lan { rate 1Gbit/s  scheduler fifo }
";

    #[test]
    fn a_packet_gets_the_class_that_its_rule_names() {
        let running = Running::new(text(POLICY)).unwrap();
        let said = |link: Option<&str>, packet: &str| -> Result<serde_json::Value, Refused> {
            let json = running.explain(link, packet)?;
            Ok(serde_json::from_slice(&json).unwrap())
        };
        let voice = said(None, "src=10.0.0.1 dst=10.0.0.2 dscp=ef").unwrap();
        assert_eq!((&voice["class"], &voice["rule"]["line"]), (&"voice".into(), &6.into()));
        assert_eq!(voice["rule"]["file"], "/etc/altq/wan.altq");
        assert_eq!(
            voice["limits"][0],
            serde_json::json!({ "class": "voice", "guaranteed_bit_s": 2_000_000,
            "ceiling_bit_s": 2_000_000 })
        );
        let rest = said(Some("wan"), "src=10.0.0.1 dst=10.0.0.2").unwrap();
        assert_eq!((&rest["class"], &rest["assumed"]), (&"rest".into(), &serde_json::json!(["dscp 0"])));
        // The packet's own word about its link holds.
        assert_eq!(said(Some("wan"), "link=lan length=60").unwrap()["link"], "lan");
        assert_eq!(said(Some("dsl"), "length=60"), Err(Refused::NoLink));
        for wrong in ["", "dport", "dport=80 dport=81", &"x".repeat(LONGEST + 1)] {
            let why = said(None, wrong).unwrap_err();
            assert!(matches!(&why, Refused::Wrong(why) if !why.is_empty()), "{wrong}: {why:?}");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_said_and_opens_no_file() {
        for wrong in ["link wan {", "include \"/etc/passwd\""] {
            assert!(Running::new(text(wrong)).is_err_and(|why| why.contains("wan.altq")), "{wrong}");
        }
        assert!(Running::new(Text { language: "mql".to_owned(), ..text(POLICY) }).is_err());
    }

    #[test]
    fn altq_is_asked_while_somebody_asks() {
        let (mut asked, now) = (Asked::default(), Instant::now());
        let at = |second: u64| now + Duration::from_secs(second);
        assert!(!asked.is_due(at(0)));
        assert!(asked.policy(at(0)).is_none() && asked.is_due(at(0)) && !asked.is_due(at(1)));
        asked.say(Err("no worker".to_owned()));
        assert!(asked.policy(at(1)).unwrap().is_err());
        assert!(asked.is_due(at(2)) && asked.is_due(at(60)));
        assert!(!asked.is_due(at(61)) && asked.known().is_none());
        // The file has other lines than what runs.
        let other = Running::new(Text { file_hash: None, ..text(POLICY) }).unwrap();
        let json = other.explain(None, "src=10.0.0.1 dst=10.0.0.2 dscp=ef").unwrap();
        assert!(String::from_utf8(json).unwrap().contains("the running policy"));
    }
}
