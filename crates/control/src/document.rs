//! Documents that are results of requests: what runs, who is subscribed, and texts.

use serde::{Deserialize, Serialize};

use crate::request::{Subscriber, Written};

/// What runs, and whether it shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The name of this form of the document.
    pub schema: String,
    /// The links, in the policy's order.
    pub links: Vec<LinkStatus>,
    /// In how many seconds an unconfirmed change reverts; null if none waits.
    pub confirm_pending_s: Option<u64>,
}

/// Whether a link is shaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// What executes it: `nfqueue`, `bridge` or `kernel`.
    pub path: String,
    /// `shaping`; `kernel`: the kernel itself shapes it; `bypass`: packets pass unshaped; or
    /// `blocked`: no packets pass except those that `--fail closed` lets through.
    pub state: String,
    /// For how many seconds it has been in this state.
    pub since_s: u64,
    /// Why it is not shaped.
    pub reason: Option<String>,
    /// What differs from the policy, one sentence each.
    pub drift: Vec<String>,
    /// How many of these, the last ones, say what clients have set: a rate, classes of subscribers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub set_by_clients: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The state of a link whose packets pass unshaped.
pub const BYPASS: &str = "bypass";
/// The state of a link whose packets do not pass.
pub const BLOCKED: &str = "blocked";
/// The state of a link that altq shapes.
pub const SHAPING: &str = "shaping";
/// The state of a link that the kernel shapes by its own qdiscs, even while no altq runs.
pub const KERNEL: &str = "kernel";

impl Status {
    /// A document about these links.
    pub fn of(links: Vec<LinkStatus>) -> Status {
        Status { schema: "altq.status/1".to_owned(), links, confirm_pending_s: None }
    }

    /// True if packets of any link pass unshaped, or do not pass.
    pub fn is_degraded(&self) -> bool {
        self.links.iter().any(|link| link.state == BYPASS || link.state == BLOCKED)
    }
}

/// The present subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Subscribers {
    /// The name of this form of the document.
    pub schema: String,
    /// The subscribers, by name.
    pub subscribers: Vec<Written>,
}

impl Subscribers {
    /// A document about these subscribers.
    pub fn of<'a>(subscribers: impl Iterator<Item = &'a Subscriber>) -> Subscribers {
        Subscribers { schema: "altq.subscribers/1".to_owned(), subscribers: subscribers.map(Written::from).collect() }
    }
}

/// A text for people, or in another tool's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Text {
    /// The text.
    pub text: String,
    /// What numbers in it mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legend: Option<String>,
}

/// Whether a link has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// False if the link was like that before.
    pub changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_fields_that_other_programs_rely_on() {
        let link = |name: &str, state: &str, reason: Option<&str>| LinkStatus {
            name: name.to_owned(),
            path: "nfqueue".to_owned(),
            state: state.to_owned(),
            since_s: 7,
            reason: reason.map(str::to_owned),
            drift: if state == KERNEL { vec!["no qdiscs".to_owned()] } else { Vec::new() },
            set_by_clients: 0,
        };
        let status = vec![link("up", SHAPING, None), link("down", BYPASS, Some("late")), link("k", KERNEL, None)];
        let status = Status::of(status);
        let text = serde_json::to_string(&status).unwrap();
        let first = r#"{"name":"up","path":"nfqueue","state":"shaping","since_s":7,"reason":null,"drift":[]}"#;
        let second = r#"{"name":"down","path":"nfqueue","state":"bypass","since_s":7,"reason":"late","drift":[]}"#;
        let (start, end) = (r#"{"schema":"altq.status/1","links":["#, r#"],"confirm_pending_s":null}"#);
        let third = r#"{"name":"k","path":"nfqueue","state":"kernel","since_s":7,"reason":null,"drift":["no qdiscs"]}"#;
        assert_eq!(text, format!("{start}{first},{second},{third}{end}"));
        assert!(status.is_degraded() && !Status::of(vec![link("up", SHAPING, None)]).is_degraded());
        assert!(Status::of(vec![link("up", BLOCKED, Some("late"))]).is_degraded());
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }
}
