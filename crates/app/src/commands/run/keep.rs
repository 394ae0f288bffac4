//! Keeps which policy runs, and which one comes back: in the supervisor or, without one, in the
//! process that shapes. A confined worker asks its supervisor (docs/apply.md).

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use altq_config::{Diagnostic, Failed, Language, Policy, Severity, Sources, load, parse_alone, print};
use altq_control::change::disk::InFolder;
use altq_control::change::{Answer, Ask, Changes, Clock, Start, Text};
use altq_control::{Code, Fault};
use altq_dataplane::fits;
use altq_dataplane::shaper::Tuning;
use rustix::time::{ClockId, clock_gettime};

use super::Args;
use super::heart::{Begun, Told, Wire};
use crate::commands::check::refused_by_kernel;
use crate::policy::{PolicyFile, print_findings};

/// The default folder in which changes are kept.
pub const FOLDER: &str = "/var/lib/altq";
/// The file with the kernel's name of this boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Keeps the changes.
pub struct Keeper {
    changes: Changes<InFolder>,
    boot_id: String,
    /// True if the policy is written to disk as soon as it runs. Otherwise the first change makes
    /// the folder.
    early: bool,
}

/// Where changes are kept.
pub enum Keep {
    /// This process.
    Here(Box<Mutex<Keeper>>),
    /// The supervisor.
    There(Wire),
}

impl Keep {
    /// Asks the keeper.
    ///
    /// # Errors
    /// The request is refused, or there is no answer.
    pub fn ask(&self, ask: Ask) -> Result<Answer, Fault> {
        let answer = match self {
            Keep::Here(keeper) => keeper.lock().unwrap_or_else(PoisonError::into_inner).ask(ask),
            Keep::There(wire) => wire
                .ask(ask)
                .map_err(|error| Fault::new(Code::Failed, format!("the supervisor does not answer: {error}")))?,
        };
        match answer {
            Answer::Refused { fault } => Err(fault),
            answer => Ok(answer),
        }
    }
}

/// The time since the boot, in nanoseconds. It goes on while the host sleeps.
pub fn boot_ns() -> u64 {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(at.tv_nsec).unwrap_or(0))
}

impl Keeper {
    /// Opens what the folder has about this policy file.
    fn open(args: &Args, file: &Path) -> Keeper {
        let folder = args.state.clone().unwrap_or_else(|| PathBuf::from(FOLDER));
        let early = args.state.is_some() || folder.is_dir();
        let disk = InFolder::new(&folder, &name_of(file, args.link.as_deref()));
        let path = disk.path();
        let (changes, why) = Changes::load(disk);
        if let Some(why) = why {
            eprintln!("altq run: {} is not read, so no policy of before is known: {why}", path.display());
            // It may be of use to somebody; otherwise the next change would replace it.
            let aside = path.with_extension("json.unread");
            match std::fs::rename(&path, &aside) {
                Ok(()) => eprintln!("altq run: it is kept as {}", aside.display()),
                Err(error) => eprintln!("altq run: it cannot be kept as {}: {error}", aside.display()),
            }
        }
        let boot_id = std::fs::read_to_string(BOOT).unwrap_or_default().trim().to_owned();
        Keeper { changes, boot_id, early }
    }

    fn clock(&self) -> Clock {
        Clock { unix_ns: read(ClockId::Realtime), boot_ns: boot_ns(), boot_id: self.boot_id.clone() }
    }

    /// Answers a question.
    pub fn ask(&mut self, ask: Ask) -> Answer {
        let now = self.clock();
        self.changes.ask(ask, &now)
    }

    /// The policy with which altq began runs now.
    pub fn started(&mut self, text: &Text) {
        if self.early
            && let Err(error) = self.changes.started(text)
        {
            eprintln!("altq run: the policy is not kept for a start with a bad file: {error}");
        }
    }

    /// How long a change still waits, in nanoseconds; `None` if none waits.
    pub fn waits(&self) -> Option<u64> {
        self.changes.waits(&self.clock())
    }

    /// When the time of the change that waits is over, in nanoseconds since the boot.
    pub fn until(&self) -> Option<u64> {
        self.changes.until(&self.clock())
    }

    /// The policy that comes back if the change that waits is taken back.
    pub fn old(&self) -> Option<&Text> {
        self.changes.old()
    }

    /// What a worker that begins now must know about the change that waits.
    pub fn of_worker(&self, begun: &Begun) -> Begun {
        Begun { until_ns: self.until(), guards: self.changes.guards().to_vec(), ..begun.clone() }
    }
}

/// The name of the file in which the changes of a policy file are kept, or of one of its links if
/// that runs alone: other links may run in another process.
fn name_of(file: &Path, link: Option<&str>) -> String {
    let mut path = file.to_string_lossy().into_owned();
    if let Some(link) = link {
        path += &format!("#{link}");
    }
    let mut name: String =
        path.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    // A name has at most 255 bytes.
    let from = name.len().saturating_sub(180);
    name.drain(..from);
    let sum =
        path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{}.{sum:016x}.json", name.trim_start_matches('_'))
}

/// A policy as text. If it consists of several files, it is printed as one text, because a worker
/// cannot open files.
pub fn text_of(file: &PolicyFile, policy: &Policy) -> Text {
    let text = policy.sources.texts.first().map_or("", |(_, text)| text.as_str());
    let language = file.language.or_else(|| Language::of(&file.file, text)).unwrap_or(Language::Native);
    let text = if policy.includes() { print(policy).text } else { text.to_owned() };
    Text { name: file.file.display().to_string(), language: language.name().to_owned(), text }
}

/// Reads a policy. It is one text: a client may have sent it, and must not have this process open
/// files that the client may not read.
///
/// # Errors
/// What is wrong with it.
pub fn policy_of(text: &Text) -> Result<Policy, Box<Failed>> {
    parse_alone(&text.text, &text.name, text.language.parse().unwrap_or(Language::Native))
}

/// The first error of a policy, in one line.
pub fn first_error(failed: &Failed) -> String {
    let error = failed.diagnostics.iter().find(|found| found.severity == Severity::Error);
    error.map_or_else(String::new, |error| placed(error, &failed.sources))
}

/// A finding in one line: its place, and what is wrong.
pub fn placed(found: &Diagnostic, sources: &Sources) -> String {
    let (line, column) = sources.line_column(found.span);
    format!("{}:{line}:{column}: {}", sources.path(found.span.source).display(), found.message)
}

/// Reads the policy file at the start of the command, and what is kept about it. `None`, after a
/// message, if there is no policy to begin with.
pub fn begin(args: &Args) -> Option<(Policy, Told, Keeper)> {
    let path = std::path::absolute(&args.policy.file).unwrap_or_else(|_| args.policy.file.clone());
    let mut keeper = Keeper::open(args, &path);
    let shown = args.policy.file.display();
    let file = match load(&args.policy.file, args.policy.language) {
        Ok(policy) => {
            print_findings(&policy.warnings, &policy.sources, false);
            let refused = refused_by_kernel(&policy);
            print_findings(&refused, &policy.sources, false);
            if refused.is_empty() { Ok(policy) } else { Err(format!("{shown} asks for what the kernel cannot do")) }
        }
        Err(failed) => {
            print_findings(&failed.diagnostics, &failed.sources, false);
            Err(format!("{shown} is wrong: {}", first_error(&failed)))
        }
    };
    let now = keeper.clock();
    let of_file = file.as_ref().ok().map(|policy| text_of(&args.policy, policy));
    let asked = file.as_ref().map(|policy| text_of(&args.policy, policy)).map_err(Clone::clone);
    let mut start = keeper.changes.start(asked, &now).ok()?;
    if let Some(old) = keeper.old().cloned()
        && !returns(args, &start.text, &old)
    {
        let why = "only a new start can take it back, and this is one";
        // If this cannot be written now, the next start does the same again.
        let _ = keeper.changes.reverted(&now, why);
        start = Start { text: old, instead: Some(format!("the change that waited is taken back: {why}")) };
    }
    let policy = match (&start.instead, file) {
        (None, Ok(policy)) if of_file.as_ref() == Some(&start.text) => policy,
        (instead, _) => {
            if let Some(why) = instead {
                eprintln!("altq run: {why}");
            }
            match policy_of(&start.text) {
                Ok(policy) => policy,
                Err(failed) => {
                    eprintln!("altq run: the policy that was kept is not understood: {}", first_error(&failed));
                    return None;
                }
            }
        }
    };
    let begun = Begun {
        path: path.display().to_string(),
        file: of_file,
        instead: start.instead,
        until_ns: None,
        guards: Vec::new(),
    };
    let begun = keeper.of_worker(&begun);
    Some((policy, Told { number: 0, text: start.text, begun }, keeper))
}

/// Whether a running altq can go from one policy to another, where both have the links that run.
pub fn returns(args: &Args, from: &Text, to: &Text) -> bool {
    let tuning = Tuning { room: args.subscribers as usize * super::QUEUE, ..Tuning::default() };
    let (Ok(from), Ok(to)) = (policy_of(from), policy_of(to)) else { return false };
    let Ok(links) = super::choose(&from, args.link.as_deref()) else { return false };
    links.into_iter().all(|from| to.link(&from.name).is_some_and(|to| fits(from, to, tuning).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers and clients hand over one text. It names no files, not even some that do not exist.
    #[test]
    fn a_policy_as_text_includes_nothing() {
        let written = "include \"nothing-*.altq\"
            link l { rate 1Mbit/s  scheduler cbq  class x { share 5%  default } }";
        let path = "/no-such-folder/p.altq";
        let policy = altq_config::parse_str(written, path, Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let text = text_of(&PolicyFile { file: PathBuf::from(path), language: None }, &policy);
        assert!(!text.text.contains("include"), "{}", text.text);
        assert!(policy_of(&text).is_ok());
        let sent = Text { text: written.to_owned(), ..text };
        let failed = policy_of(&sent).unwrap_err();
        assert!(first_error(&failed).contains("includes no files"), "{failed}");
    }

    #[test]
    fn each_policy_file_has_a_file_of_its_own() {
        let name = |path: &str| name_of(Path::new(path), None);
        assert_ne!(name("/a/b.altq"), name_of(Path::new("/a/b.altq"), Some("wan")));
        assert!(name("/etc/altq/isp.altq").starts_with("etc_altq_isp.altq."));
        assert_ne!(name("/a/b_c.altq"), name("/a_b/c.altq"));
        assert!(name(&format!("/{}", "ä/".repeat(400))).len() < 255);
    }
}
