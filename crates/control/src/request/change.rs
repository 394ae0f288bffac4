//! Requests that change the running policy, and their answers.

use altq_config::Edit;
use altq_engine::units::Nanos;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{fields, name};
use crate::change::{Entry, Guard, LONGEST, Watched};
use crate::fault::Fault;

/// The most guards of a request.
pub const GUARDS: usize = 16;
/// The longest text of a rule, in bytes.
pub const RULE: usize = 4096;

/// A policy that is to replace the running one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Apply {
    /// What messages call it: the path of its file.
    pub name: String,
    /// Its language, by the name that `--language` takes.
    pub language: String,
    /// The policy.
    pub text: String,
    /// This link only; the others stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Whether subscribers and reservations that no longer fit lose their classes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub evict: bool,
    /// Whether to change nothing, and only answer what would change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
    /// How it has to be confirmed.
    #[serde(flatten)]
    pub safe: Safe,
}

/// When a change is taken back by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Safe {
    /// After this time, unless it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_ns: Option<Nanos>,
    /// As soon as one of these does not hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<Guard>,
}

/// A request about the policy that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `apply`: another policy.
    Apply(Box<Apply>),
    /// `class.set` and others: changes one thing in the policy.
    Edit {
        /// The link.
        link: String,
        /// The change.
        edit: Edit,
        /// How it has to be confirmed.
        safe: Safe,
    },
    /// `confirm`: keeps the change that waits.
    Confirm,
    /// `rollback`: takes back the change that waits; if none waits, brings back the previous
    /// policy.
    Rollback {
        /// Brings it back even if the last change was taken back already.
        force: bool,
    },
    /// `history`: the changes so far.
    History,
    /// `policy`: the text of the policy that runs.
    Policy,
    /// `policy.saved`: the file of the start has the text that runs, as a client has written it
    /// there.
    Saved {
        /// The [hash] of that text.
        hash: String,
    },
    /// `verify`: what runs, for whoever compares it.
    Runs,
}

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Applied {
    /// The name of this form of the document.
    pub schema: String,
    /// The number of the change; null if nothing was changed.
    pub number: Option<u64>,
    /// The differences from the previous policy, one line each.
    pub differences: Vec<String>,
    /// In how many seconds it is taken back unless it is confirmed.
    pub confirm_s: Option<u64>,
    /// Other remarks, one sentence each.
    pub notes: Vec<String>,
}

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct History {
    /// The name of this form of the document.
    pub schema: String,
    /// The changes, the latest last.
    pub changes: Vec<Entry>,
    /// The guards of the change that waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<Watched>,
}

/// The text of the policy that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Running {
    /// The name of this form of the document.
    pub schema: String,
    /// Its language.
    pub language: String,
    /// The text.
    pub text: String,
    /// The absolute path of the file with which altq was started.
    pub file: String,
    /// A hash of that file's text as altq knows it: 64 bits of FNV-1a, in hexadecimal; null if it
    /// had errors when it was read.
    #[serde(default)]
    pub file_hash: Option<String>,
    /// True if a link of another file was applied by itself, so that the text was put together,
    /// without comments.
    #[serde(default)]
    pub put_together: bool,
}

/// The hash of a text by which a client finds out whether a file was changed: FNV-1a of 64 bits. A
/// byte order mark before the text is no part of it.
pub fn hash(text: &[u8]) -> String {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

impl Applied {
    /// The name of this form.
    pub const SCHEMA: &str = "altq.apply/1";
}

impl History {
    /// A document about these changes, and the guards of the one that waits.
    pub fn of(changes: Vec<Entry>, guards: Vec<Watched>) -> History {
        History { schema: "altq.history/1".to_owned(), changes, guards }
    }
}

impl Running {
    /// The name of this form.
    pub const SCHEMA: &str = "altq.policy/1";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyFields {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    name: String,
    language: String,
    text: String,
    link: Option<String>,
    #[serde(default)]
    evict: bool,
    #[serde(default)]
    check: bool,
    confirm_ns: Option<Nanos>,
    #[serde(default)]
    guards: Vec<Guard>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollbackFields {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    #[serde(default)]
    force: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedFields {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    hash: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditFields {
    #[serde(default, rename = "v")]
    _v: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(rename = "op")]
    _op: IgnoredAny,
    link: String,
    class: Option<String>,
    below: Option<String>,
    words: Option<String>,
    rule: Option<String>,
    #[serde(default)]
    last: bool,
    confirm_ns: Option<Nanos>,
    #[serde(default)]
    guards: Vec<Guard>,
}

/// Reads a request of this name; `None` if the name is not one of these requests.
pub(super) fn read(op: &str, line: &[u8]) -> Option<Result<Change, Fault>> {
    let nothing = |change: Change| fields::<super::Nothing>(line).map(|_| change);
    Some(match op {
        "apply" => fields::<ApplyFields>(line).and_then(ApplyFields::change),
        "class.set" | "class.add" | "class.remove" | "match.add" | "match.remove" => {
            fields::<EditFields>(line).and_then(|fields| fields.change(op))
        }
        "confirm" => nothing(Change::Confirm),
        "rollback" => fields::<RollbackFields>(line).map(|fields| Change::Rollback { force: fields.force }),
        "history" => nothing(Change::History),
        "policy" => nothing(Change::Policy),
        "policy.saved" => fields::<SavedFields>(line).map(|fields| Change::Saved { hash: fields.hash }),
        "verify" => nothing(Change::Runs),
        _ => return None,
    })
}

/// Checks how a change is to be confirmed.
fn safe(confirm_ns: Option<Nanos>, guards: Vec<Guard>) -> Result<Safe, Fault> {
    if confirm_ns.is_some_and(|wait| wait == 0 || wait > LONGEST) {
        return Err(Fault::usage("the time to confirm a change must be more than 0, and at most a week"));
    }
    if guards.len() > GUARDS {
        return Err(Fault::usage(format!("a change has at most {GUARDS} guards, not {}", guards.len())));
    }
    if !guards.is_empty() && confirm_ns.is_none() {
        let fault = Fault::usage("`guards` watch a change that waits to be confirmed");
        return Err(fault.help("write `confirm_ns` as well"));
    }
    for guard in &guards {
        name("class", guard.class.clone())?;
        guard.link.clone().map(|link| name("link", link)).transpose()?;
    }
    Ok(Safe { confirm_ns, guards })
}

impl ApplyFields {
    fn change(self) -> Result<Change, Fault> {
        let safe = safe(self.confirm_ns, self.guards)?;
        let link = self.link.map(|link| name("link", link)).transpose()?;
        self.language.parse::<altq_config::Language>().map_err(Fault::usage)?;
        if self.name.len() > 4096 {
            return Err(Fault::usage("the name of the policy is longer than a path may be"));
        }
        let ApplyFields { name, language, text, evict, check, .. } = self;
        Ok(Change::Apply(Box::new(Apply { name, language, text, link, evict, check, safe })))
    }
}

impl EditFields {
    fn change(self, op: &str) -> Result<Change, Fault> {
        let EditFields { link, class, below, words, rule, last, confirm_ns, guards, .. } = self;
        let link = name("link", link)?;
        let safe = safe(confirm_ns, guards)?;
        let of_rule = op.starts_with("match.");
        let unused = match op {
            "class.set" => below.is_some() || rule.is_some() || last,
            "class.add" => rule.is_some() || last,
            "class.remove" => below.is_some() || words.is_some() || rule.is_some() || last,
            "match.add" => class.is_some() || below.is_some() || words.is_some(),
            _ => class.is_some() || below.is_some() || words.is_some() || last,
        };
        if unused {
            return Err(Fault::usage(format!("`{op}` does not take all of these fields")));
        }
        let missing = |field: &str| Fault::usage(format!("`{op}` needs `{field}`"));
        let short = |text: String, what: &str, most: usize| {
            let long = text.len() > most;
            if long { Err(Fault::usage(format!("{what} are longer than {most} bytes"))) } else { Ok(text) }
        };
        let edit = if of_rule {
            let rule = short(rule.ok_or_else(|| missing("rule"))?, "the words of a rule", RULE)?;
            if op == "match.add" { Edit::AddRule { rule, last } } else { Edit::RemoveRule { rule } }
        } else {
            let class = name("class", class.ok_or_else(|| missing("class"))?)?;
            let below = below.map(|below| name("class", below)).transpose()?;
            let words = words.map(|words| short(words, "the words of a class", RULE)).transpose()?;
            match op {
                "class.set" => Edit::SetClass { class, words: words.ok_or_else(|| missing("words"))? },
                "class.add" => Edit::AddClass { class, below, words: words.unwrap_or_default() },
                _ => Edit::RemoveClass { class },
            }
        };
        Ok(Change::Edit { link, edit, safe })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Right;

    fn reads(line: &str) -> Result<Change, Fault> {
        match crate::request::read(line.as_bytes()) {
            Ok(asked) => {
                assert_eq!(asked.request.needs(), Right::Write, "{line}");
                let crate::Request::Change(change) = asked.request else { panic!("{line}") };
                Ok(change)
            }
            Err((_, fault)) => Err(fault),
        }
    }

    #[test]
    fn a_file_that_was_saved_is_told_by_its_hash() {
        // Published values of FNV-1a.
        assert_eq!(hash(b""), "cbf29ce484222325");
        assert_eq!(hash(b"a"), "af63dc4c8601ec8c");
        assert_eq!(hash(b"foobar"), "85944171f73967e8");
        assert_eq!(hash("\u{feff}foobar".as_bytes()), "85944171f73967e8");
        let line = r#"{"op":"policy.saved","hash":"85944171f73967e8"}"#;
        assert_eq!(reads(line), Ok(Change::Saved { hash: hash(b"foobar") }));
        assert!(reads(r#"{"op":"policy.saved"}"#).is_err());
        assert!(reads(r#"{"op":"policy.saved","hash":"","text":""}"#).is_err());
    }

    #[test]
    fn a_rollback_may_be_forced() {
        for (line, force) in [(r#"{"op":"rollback"}"#, false), (r#"{"op":"rollback","force":true}"#, true)] {
            assert_eq!(reads(line), Ok(Change::Rollback { force }));
        }
        assert!(reads(r#"{"op":"rollback","to":1}"#).is_err());
    }
}
