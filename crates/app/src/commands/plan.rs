//! `altq plan`: what a policy would change, before it is applied (docs/plan.md).
//!
//! Nothing is changed. The altq that runs is asked for the text of its policy, and with `--for` for
//! the packets that it sends; or two files are compared. What packets would get is computed by the
//! engine itself, once with each policy.

#[cfg(feature = "experiments")]
mod recorded;
mod shown;
#[cfg(feature = "experiments")]
mod traffic;

#[cfg(feature = "experiments")]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
#[cfg(feature = "experiments")]
use std::time::Duration;

use altq_config::{Policy, compared};
#[cfg(feature = "experiments")]
use altq_control::client::Client;
use altq_control::client::NoFields;
use altq_control::runs::Runs;
use altq_control::{Code, Fault};
use altq_engine::units::Rate;
#[cfg(feature = "experiments")]
use altq_simulator::sim::Capture;

use super::check::refused_by_kernel;
use super::verify;
#[cfg(feature = "experiments")]
use crate::captured;
use crate::exit::Exit;
use crate::policy::{PolicyFile, print_findings, read, shown as named};
use crate::socket::{Socket, ask, fail};
use shown::{Document, Planned};

/// Options of `altq plan`.
#[derive(Debug, clap::Args)]
#[cfg_attr(
    feature = "experiments",
    command(after_help = "Examples:
  altq plan new.altq                  compared with what runs
  altq plan new.altq --for 10s        and what would happen to packets that are sent now
  altq plan new.altq --against old.altq --capture wan.pcap")
)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// The policy to compare with [default: the one that runs]
    #[arg(long, value_name = "OLD", conflicts_with = "socket")]
    against: Option<PathBuf>,
    /// Packets (pcap, pcapng) that would take the link: which ones change their class, and what
    /// each class would get
    #[cfg(feature = "experiments")]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// The same for what the links send from now on, for a time such as 10s
    #[cfg(feature = "experiments")]
    #[arg(long = "for", value_name = "TIME", value_parser = altq_config::literal::time_with_unit)]
    #[arg(conflicts_with_all = ["against", "capture"])]
    duration: Option<altq_engine::units::Nanos>,
    /// Only this link
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Prints each class. Otherwise only those for which something changes
    #[arg(long, conflicts_with = "json")]
    all: bool,
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON (altq.plan/1)
    #[arg(long)]
    json: bool,
}

/// What a new policy is compared with.
struct Baseline {
    policy: Policy,
    /// A file, or the altq that runs.
    name: String,
    /// The links that run, if the policy does.
    running: Option<Vec<String>>,
    /// The link to which `altq run --link` was limited.
    only: Option<String>,
    /// The altq that runs.
    #[cfg(feature = "experiments")]
    client: Option<Client>,
}

impl Baseline {
    /// The policy of a file.
    fn of_file(policy: Policy, name: String) -> Baseline {
        Baseline {
            policy,
            name,
            running: None,
            only: None,
            #[cfg(feature = "experiments")]
            client: None,
        }
    }
}

/// Runs the command. The exit code is 3 if something would change.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let input = Path::new("-");
    if args.policy.file == input && args.against.as_deref() == Some(input) {
        eprintln!("altq plan: only one of the two policies comes from standard input; name a file for the other");
        return Ok(Exit::Usage);
    }
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    let refused = refused_by_kernel(&policy);
    if !refused.is_empty() {
        print_findings(&refused, &policy.sources, false);
        return Ok(Exit::Usage);
    }
    let baseline = match &args.against {
        Some(file) => match read(file, None) {
            Ok(policy) => Baseline::of_file(policy, named(file)),
            Err(failed) => {
                print_findings(&failed.diagnostics, &failed.sources, false);
                return Ok(Exit::Usage);
            }
        },
        None => match what_runs(&args.socket) {
            Ok(baseline) => baseline,
            Err(fault) => return Ok(fail("plan", &fault)),
        },
    };
    let mut names = names(&policy, &baseline);
    if let Some(link) = args.link.as_ref().filter(|link| !names.contains(link)) {
        eprintln!("altq plan: neither policy has a link `{link}`; there is {}", names.join(", "));
        return Ok(Exit::Usage);
    }
    names.retain(|name| args.link.as_ref().is_none_or(|link| link == name));
    #[cfg(feature = "experiments")]
    let packets = match packets(args, baseline.client, baseline.running.as_deref(), &names)? {
        Ok(packets) => packets,
        Err(exit) => return Ok(exit),
    };
    let mut document = Document::new(named(&args.policy.file), baseline.name.clone(), baseline.running.is_some());
    for name in &names {
        let (before, after) = (baseline.policy.link(name), policy.link(name));
        let mut planned = Planned::new(name, before, after);
        match (before, after) {
            (Some(before), Some(after)) => {
                planned.differs(compared(before, after), verify::needs_a_start(before, after));
            }
            (None, Some(_)) => planned.restarts("it is new"),
            (_, None) => planned.restarts("it is gone"),
        }
        #[cfg(feature = "experiments")]
        if let Some(capture) = packets.of(name) {
            if let Err(error) = traffic::predict(&mut planned, before, after, capture) {
                eprintln!("altq plan: link {name}: {error}");
                return Ok(Exit::Usage);
            }
            planned.capture = Some(shown::Captured::new(packets.file(), &capture.frames));
        }
        document.links.push(planned);
    }
    document.print(args.json, args.all)?;
    Ok(if document.changes() { Exit::Differs } else { Exit::Ok })
}

/// The packets for which figures are predicted.
#[cfg(feature = "experiments")]
enum Packets {
    /// There are none.
    None,
    /// Those of a file, for each link.
    File(PathBuf, Capture),
    /// What each link has sent.
    Recorded(BTreeMap<String, Capture>),
}

#[cfg(feature = "experiments")]
impl Packets {
    /// The packets of a link.
    fn of(&self, link: &str) -> Option<&Capture> {
        match self {
            Packets::None => None,
            Packets::File(_, capture) => Some(capture),
            Packets::Recorded(captures) => captures.get(link),
        }
    }

    /// The file that has them.
    fn file(&self) -> Option<String> {
        match self {
            Packets::File(path, _) => Some(named(path)),
            Packets::None | Packets::Recorded(_) => None,
        }
    }
}

/// Reads or records the packets. The exit code where that fails, after a message.
#[cfg(feature = "experiments")]
fn packets(
    args: &Args,
    client: Option<Client>,
    running: Option<&[String]>,
    names: &[String],
) -> anyhow::Result<Result<Packets, Exit>> {
    if let Some(file) = &args.capture {
        if names.len() > 1 {
            eprintln!("altq plan: which link takes the packets? choose one with --link: {}", names.join(", "));
            return Ok(Err(Exit::Usage));
        }
        let capture = captured::read("plan", file)?;
        return Ok(capture.map(|capture| Packets::File(file.clone(), capture)).ok_or(Exit::Usage));
    }
    let (Some(time), Some(mut client), Some(running)) = (args.duration, client, running) else {
        return Ok(Ok(Packets::None));
    };
    let links: Vec<&str> = names.iter().filter(|name| running.contains(name)).map(String::as_str).collect();
    Ok(match recorded::record(&mut client, &links, Duration::from_nanos(time)) {
        Ok(captures) => Ok(Packets::Recorded(links.into_iter().map(str::to_owned).zip(captures).collect())),
        Err(fault) => Err(fail("plan", &fault)),
    })
}

/// The policy that runs. Its links have the rates that they have now.
fn what_runs(socket: &Socket) -> Result<Baseline, Fault> {
    let mut client = socket.connect().map_err(|fault| match fault.code {
        Code::Failed => fault.help("--against OLD compares with a file, without a running altq"),
        _ => fault,
    })?;
    let runs: Runs = ask(&mut client, "verify", &NoFields {})?;
    let mut policy = verify::running(&runs)?;
    for link in &mut policy.links {
        if let Some(one) = runs.links.iter().find(|one| one.name == link.name) {
            link.spec.rate = Rate::bit_s(one.rate_bit_s);
        }
    }
    let running = Some(runs.links.iter().map(|link| link.name.clone()).collect());
    Ok(Baseline {
        policy,
        name: "what runs".to_owned(),
        running,
        only: runs.only,
        #[cfg(feature = "experiments")]
        client: Some(client),
    })
}

/// The links to compare: those of the new policy, then those that only the old one has. Beside a
/// running altq only links that run, or have a device.
fn names(policy: &Policy, baseline: &Baseline) -> Vec<String> {
    let runs = |name: &String| baseline.running.as_ref().is_none_or(|running| running.contains(name));
    let chosen = |name: &String| baseline.only.as_ref().is_none_or(|only| only == name);
    let new = policy.links.iter().filter(|link| (link.device.is_some() && chosen(&link.name)) || runs(&link.name));
    let mut names: Vec<String> = new.map(|link| link.name.clone()).collect();
    let old = baseline.policy.links.iter().map(|link| link.name.clone()).filter(runs);
    names.extend(old.filter(|name| policy.link(name).is_none()));
    names
}

/// The JSON Schema of `altq.plan/1`.
#[cfg(test)]
pub fn schema(generator: &schemars::generate::SchemaGenerator) -> schemars::Schema {
    generator.clone().into_root_schema_for::<Document>()
}
