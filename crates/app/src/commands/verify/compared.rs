//! What runs beside what was asked for: version, policy, links, and what altq says of itself.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use altq_config::{Device as Place, Language, Link, Path as By, Policy};
use altq_config::{changes, compared as differing, load, parse_str};
use altq_control::document::LinkStatus;
use altq_control::runs::{LinkRuns, Runs};
use altq_control::{Code, Fault};
use altq_dataplane::kernel::Detached;
use altq_dataplane::nfqueue::steer::{Fail, Firewall, Steer};
use altq_dataplane::verify::{Difference, Guard, SetUp, Settings, Steered};
use serde::Serialize;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What makes the program that runs the one that is here.
const START_AGAIN: &str = "start altq again (`systemctl restart altq`, or end `altq run` and start it)";
/// What stands for nothing.
const NOTHING: &str = "nothing";

/// Something that is otherwise than it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Found {
    /// What was compared: `version`, `file`, `policy`, `state`, `loop`, `rules`, `queue`, `bridge`,
    /// `device`, `rate` or `kernel`.
    pub check: &'static str,
    /// Where it is.
    #[serde(rename = "where")]
    pub place: String,
    /// What was asked for.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What puts it right.
    pub fix: String,
}

impl Found {
    /// What was expected, and what is there.
    pub fn new(check: &'static str, place: &str, [expected, found]: [String; 2], fix: &str) -> Found {
        Found { check, place: place.to_owned(), expected, found, fix: fix.to_owned() }
    }
}

impl From<Difference> for Found {
    fn from(one: Difference) -> Found {
        let Difference { check, place, expected, found, remedy } = one;
        Found { check, place, expected, found, fix: remedy }
    }
}

/// What should run.
pub enum Asked<'a> {
    /// The policy of a file.
    File(&'a Path, &'a Policy),
    /// What was applied last, by an altq that was started with this file.
    Applied(&'a str, &'a Policy),
}

impl<'a> Asked<'a> {
    fn policy(&self) -> &'a Policy {
        match self {
            Asked::File(_, policy) | Asked::Applied(_, policy) => policy,
        }
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&'a Link> {
        self.policy().link(name)
    }

    /// The command that applies it.
    pub fn apply(&self) -> String {
        match self {
            Asked::File(path, _) => format!("altq apply {}", path.display()),
            Asked::Applied(file, _) => format!("altq apply {file}"),
        }
    }

    /// Links that run and are not asked for, and links that are asked for and do not run.
    pub fn links_apart(&self, runs: &Runs) -> Vec<Found> {
        let Asked::File(path, policy) = self else { return Vec::new() };
        let fix = format!("a new start: end `altq run`, then altq run {}", path.display());
        let mut found = silent_links(policy, runs, "policy", &fix);
        for link in runs.links.iter().filter(|one| policy.link(&one.name).is_none()) {
            let said = ["no link of this name".to_owned(), "it runs".to_owned()];
            found.push(Found::new("policy", &format!("link {}", link.name), said, &fix));
        }
        found
    }

    /// What differs from what is wanted of a link.
    pub fn apart(&self, wanted: &Link, now: &Link) -> Vec<Found> {
        let fix = match self {
            // Beside its policy only its rate can be set.
            Asked::Applied(..) => format!("altq link set {} rate {}", wanted.name, wanted.spec.rate),
            Asked::File(path, _) => put_right(path, wanted, now),
        };
        differences("policy", wanted, now, &fix)
    }
}

/// What only a new start changes from one link to another. `None` if `altq apply` changes all.
pub fn needs_a_start(now: &Link, wanted: &Link) -> Option<String> {
    let same = wanted.device == now.device && wanted.path() == now.path();
    match (same, now.path()) {
        (false, _) => Some("its device or path".to_owned()),
        // The kernel builds another tree.
        (true, Some(By::Kernel)) => None,
        (true, _) => changes(now, wanted).err(),
    }
}

/// How a policy takes the place of what runs.
fn put_right(path: &Path, wanted: &Link, now: &Link) -> String {
    let path = path.display();
    match needs_a_start(now, wanted) {
        None => format!("altq apply {path}"),
        Some(what) => format!("a new start, which alone changes {what}: end `altq run`, then altq run {path}"),
    }
}

fn differences(check: &'static str, wanted: &Link, now: &Link, fix: &str) -> Vec<Found> {
    let one = |differs: altq_config::Differs| {
        let of_link = format!("link {}", now.name);
        let place = if differs.what == of_link { of_link } else { format!("{of_link}, {}", differs.what) };
        let said = [differs.before, differs.now].map(|said| said.unwrap_or_else(|| NOTHING.to_owned()));
        Found::new(check, &place, said, fix)
    };
    differing(wanted, now).into_iter().map(one).collect()
}

fn device(link: &Link) -> String {
    match &link.device {
        Some(Place::Interface { name, .. }) => name.clone(),
        Some(Place::Bridge { from, to }) => format!("{from} and {to}"),
        None => NOTHING.to_owned(),
    }
}

/// The policy that runs.
///
/// # Errors
/// It is not understood: altq has another version.
pub fn running(runs: &Runs) -> Result<Policy, Fault> {
    let language = runs.language.parse().unwrap_or(Language::Native);
    parse_str(&runs.text, "what-runs", language).map_err(|failed| {
        let message = format!("the policy that altq {} runs is not understood here: {failed}", runs.version);
        Fault::new(Code::Failed, message).help("use the program that runs")
    })
}

/// What differs between the file that altq was started with and what was applied last.
pub fn file(runs: &Runs, running: &Policy) -> Vec<Found> {
    let path = Path::new(&runs.file);
    let place = format!("file {}", path.display());
    let language = runs.language.parse::<Language>().ok();
    let policy = match load(path, None).or_else(|_| load(path, language)) {
        Ok(policy) => policy,
        Err(failed) => {
            let said = failed.to_string();
            let said = said.lines().next().unwrap_or("it is wrong").to_owned();
            return vec![Found::new("file", &place, ["the policy that runs".to_owned(), said], "altq save")];
        }
    };
    let fix = format!("altq save writes what runs into the file; altq apply {} applies the file", path.display());
    let mut found = Vec::new();
    for one in &runs.links {
        match (policy.link(&one.name), running.link(&one.name)) {
            (Some(wanted), Some(now)) => found.extend(differences("file", wanted, now, &fix)),
            (None, Some(_)) => {
                let said = ["no link of this name".to_owned(), "it runs".to_owned()];
                found.push(Found::new("file", &format!("link {}", one.name), said, &fix));
            }
            (_, None) => {}
        }
    }
    found.extend(silent_links(&policy, runs, "file", &format!("a new start runs it; {fix}")));
    found
}

/// Links of a policy that do not run, but would after a new start.
fn silent_links(policy: &Policy, runs: &Runs, check: &'static str, fix: &str) -> Vec<Found> {
    let chosen = |name: &str| runs.only.as_ref().is_none_or(|only| only == name);
    let links = policy.links.iter().filter(|link| link.device.is_some() && chosen(&link.name));
    let silent = links.filter(|link| runs.links.iter().all(|one| one.name != link.name));
    let found = silent.map(|link| {
        let said = [format!("it runs on {}", device(link)), "it does not run".to_owned()];
        Found::new(check, &format!("link {}", link.name), said, fix)
    });
    found.collect()
}

/// What differs where altq is so old that it does not say what runs.
pub fn older() -> Found {
    let said = [format!("version {VERSION}"), "an older one, which does not know `verify`".to_owned()];
    Found::new("version", "altq run", said, START_AGAIN)
}

/// Whether the program that runs is this one. `process` runs it; 0: that is not known.
pub fn version(runs: &Runs, process: i32) -> Option<Found> {
    let found = if runs.version == VERSION { another_build(process)? } else { format!("version {}", runs.version) };
    Some(Found::new("version", "altq run", [format!("version {VERSION}"), found], START_AGAIN))
}

/// What a process runs, if that is another program than this one.
fn another_build(process: i32) -> Option<String> {
    if process <= 0 {
        return None;
    }
    let (theirs, own) = (format!("/proc/{process}/exe"), "/proc/self/exe");
    let (there, here) = (fs::metadata(&theirs).ok()?, fs::metadata(own).ok()?);
    let same = (there.dev(), there.ino()) == (here.dev(), here.ino());
    // A copy is the same program.
    if same || there.len() == here.len() && fs::read(&theirs).ok()? == fs::read(own).ok()? {
        return None;
    }
    let path = fs::read_link(&theirs).ok()?;
    Some(format!("another build of it: {}", path.display()))
}

/// What is said of a link that is not shaped.
pub fn not_shaped(link: &LinkStatus) -> Option<Found> {
    use altq_control::document::{BLOCKED, BYPASS};
    let found = match link.state.as_str() {
        BYPASS => "BYPASS: packets pass unshaped",
        BLOCKED => "BLOCKED: packets do not pass",
        _ => return None,
    };
    let why = link.reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let said = ["it is shaped".to_owned(), format!("{found}{why}")];
    let fix = "altq run starts the next worker by itself; what it says (journalctl -u altq) tells why it ends";
    Some(Found::new("state", &format!("link {}", link.name), said, fix))
}

/// What differs of a link that `altq run --detach` should have set up.
pub fn detached(link: &Link, there: Option<&Detached>, fix: &str) -> Option<Found> {
    let stands = |name: &str, ingress: bool| format!("it stands on {name}{}", if ingress { " ingress" } else { "" });
    let Some(Place::Interface { name, ingress }) = &link.device else { return None };
    let found = match there {
        Some(there) if there.interface == *name && there.ingress == *ingress => return None,
        Some(there) => stands(&there.interface, there.ingress),
        None => "it does not stand".to_owned(),
    };
    Some(Found::new("policy", &format!("link {}", link.name), [stands(name, *ingress), found], fix))
}

/// What is said of classes that the policy does not have.
pub fn beside(classes: u64) -> Option<String> {
    match classes {
        0 => None,
        1 => Some("a class of a subscriber or a reservation runs beside the policy".to_owned()),
        count => Some(format!("{count} classes of subscribers and reservations run beside the policy")),
    }
}

/// What a link has set up, as altq says it.
pub fn set_up(link: &LinkRuns) -> SetUp {
    let steered = link.steering.as_ref().map(|one| Steered {
        steer: Steer {
            interface: one.interface.clone(),
            ingress: one.ingress,
            port: one.port,
            queue: one.queue,
            dscp: one.dscp.clone(),
            fail: one.except.clone().map_or(Fail::Open, |except| Fail::Closed { except }),
        },
        firewall: if one.firewall == "nft" { Firewall::Nft } else { Firewall::Iptables },
        owner: one.owner,
    });
    let guards = link.guards.iter();
    let guards = guards.map(|one| Guard { interface: one.interface.clone(), program: one.program.clone() }).collect();
    let devices = link.devices.iter().map(|one| Settings {
        name: one.name.clone(),
        queue_length: one.queue_length,
        offloads: one.offloads.clone(),
    });
    SetUp { steered, guards, devices: devices.collect() }
}

#[cfg(test)]
mod tests;
