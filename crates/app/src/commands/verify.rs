//! `altq verify`: reads back what runs and what stands on the host, and compares it with the policy
//! (docs/verify.md).
//!
//! The command looks by itself, as a process of its own: from the altq that runs it takes what was
//! asked for, and what its loops have.

mod compared;
mod place;
#[cfg(feature = "experiments")]
mod probe;
mod shown;

use std::path::{Path, PathBuf};

use altq_config::{Language, Link, Path as By, Policy};
use altq_control::client::{Client, NoFields};
use altq_control::document::Status;
use altq_control::runs::Runs;
use altq_control::{Code, Fault};
use altq_dataplane::kernel::detached;
use altq_dataplane::verify;

use crate::exit::Exit;
use crate::policy::load_policy;
use crate::socket::{Socket, ask, fail};
use compared::{Asked, Found};
pub use compared::{needs_a_start, running};
use shown::{Document, Verified};

/// Options of `altq verify`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The policy that should run [default: the one that was applied last; and the file that altq
    /// was started with should say the same]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The policy's language: native or altq [default: by the file's name]
    #[arg(long, requires = "file")]
    language: Option<Language>,
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON (altq.verify/1; with --probe a line of altq.result/1 for each link)
    #[arg(long)]
    json: bool,
    /// Sends marked traffic through each class, in network namespaces, and compares what each gets
    /// with what it is promised
    #[cfg(feature = "experiments")]
    #[arg(long)]
    probe: bool,
    /// For how long each link is probed [default: 5s]
    #[cfg(feature = "experiments")]
    #[arg(long = "for", value_name = "TIME", requires = "probe")]
    #[arg(value_parser = altq_config::literal::time_with_unit)]
    duration: Option<altq_engine::units::Nanos>,
}

/// The policy of a file.
struct OfFile {
    path: PathBuf,
    policy: Policy,
}

/// Runs the command. The exit code is 3 where something differs, and 4 where packets of a link pass
/// unshaped, or do not pass.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let file = match &args.file {
        None => None,
        Some(path) => match load_policy(path, args.language) {
            Some(policy) => {
                let path = if path == Path::new("-") { path.clone() } else { std::path::absolute(path)? };
                Some(OfFile { path, policy })
            }
            None => return Ok(Exit::Usage),
        },
    };
    #[cfg(feature = "experiments")]
    if args.probe {
        let time = args.duration.unwrap_or(probe::USUAL);
        return probe::run(&args.socket, file.as_ref().map(|file| &file.policy), time, args.json);
    }
    let mut client = match args.socket.connect() {
        Ok(client) => client,
        Err(fault) => return without(args, file.as_ref(), &fault),
    };
    let status = match ask::<Status>(&mut client, "status", &NoFields {}) {
        Ok(status) => status,
        Err(fault) => return Ok(fail("verify", &fault)),
    };
    let mut document = Document::new(file.as_ref().map(|file| file.path.as_path()));
    if status.is_degraded() {
        return degraded(args, document, &status);
    }
    let runs = match ask::<Runs>(&mut client, "verify", &NoFields {}) {
        Ok(runs) => runs,
        // An altq that does not know what is asked is an older one.
        Err(fault) if fault.code == Code::Usage => {
            document.differs.push(compared::older());
            return done(args, document);
        }
        Err(fault) => {
            // The worker may have ended just now.
            return match ask::<Status>(&mut client, "status", &NoFields {}) {
                Ok(status) if status.is_degraded() => degraded(args, document, &status),
                _ => Ok(fail("verify", &fault)),
            };
        }
    };
    match compare(&client, file.as_ref(), &status, &runs, &mut document) {
        Ok(()) => done(args, document),
        Err(fault) => Ok(fail("verify", &fault)),
    }
}

/// Compares all links.
fn compare(
    client: &Client,
    file: Option<&OfFile>,
    status: &Status,
    runs: &Runs,
    document: &mut Document,
) -> Result<(), Fault> {
    let process = altq_dataplane::credentials(client).map_or(0, |peer| peer.pid);
    document.differs.extend(compared::version(runs, process));
    document.checks = vec!["version"];
    let running = compared::running(runs)?;
    let asked = match file {
        Some(file) => Asked::File(&file.path, &file.policy),
        None => {
            document.checks.push("file");
            document.differs.extend(compared::file(runs, &running));
            Asked::Applied(&runs.file, &running)
        }
    };
    document.differs.extend(asked.links_apart(runs));
    let by_kernel = |link: &Link| link.path() == Some(By::Kernel);
    let of = |name: &str| running.link(name);
    if !runs.links.iter().all(|link| of(&link.name).is_none_or(by_kernel)) {
        place::may_look()?;
    }
    place::enter(process)?;
    for link in &runs.links {
        // It was applied, so it is there.
        let Some(text) = of(&link.name) else { continue };
        let mut now = text.clone();
        now.spec.rate = altq_engine::units::Rate::bit_s(link.rate_bit_s);
        let state = status.links.iter().find(|one| one.name == link.name).map_or("", |one| one.state.as_str());
        let mut verified = Verified::new(&link.name, now.path().map_or("", By::name), state);
        if let Some(wanted) = asked.link(&link.name) {
            verified.checks.push("policy");
            verified.differs.extend(asked.apart(wanted, &now));
        }
        verified.add_loop(link, by_kernel(&now));
        verified.add(verify::look(&now, Some(&compared::set_up(link)), &asked.apply()));
        verified.notes.extend(compared::beside(link.beside));
        document.links.push(verified);
    }
    if let Some(seconds) = status.confirm_pending_s {
        document.notes.push(format!("a change waits: without `altq confirm` it is taken back in {seconds} s"));
    }
    Ok(())
}

/// Packets are not shaped, so there is nothing to compare.
fn degraded(args: &Args, mut document: Document, status: &Status) -> anyhow::Result<Exit> {
    document.checks = vec!["state"];
    for link in &status.links {
        let mut verified = Verified::new(&link.name, &link.path, &link.state);
        verified.checks.push("state");
        verified.differs.extend(compared::not_shaped(link));
        document.links.push(verified);
    }
    document.print(args.json)?;
    Ok(Exit::Bypassed)
}

/// Without a running altq only what `altq run --detach` has set up can be looked at.
fn without(args: &Args, file: Option<&OfFile>, fault: &Fault) -> anyhow::Result<Exit> {
    let Some(file) = file else { return Ok(fail("verify", fault)) };
    let links: Vec<&Link> = file.policy.links.iter().filter(|link| link.device.is_some()).collect();
    let stand = detached().unwrap_or_default();
    if stand.is_empty() || links.is_empty() || links.iter().any(|link| link.path() != Some(By::Kernel)) {
        return Ok(fail("verify", fault));
    }
    let mut document = Document::new(Some(&file.path));
    let asked = Asked::File(&file.path, &file.policy);
    let apply = format!("altq run --detach {}", file.path.display());
    for link in links {
        let mut verified = Verified::new(&link.name, By::Kernel.name(), By::Kernel.name());
        let there = stand.iter().find(|one| one.link == link.name);
        verified.differs.extend(compared::detached(link, there, &apply));
        verified.add(verify::look(link, None, &apply));
        document.links.push(verified);
    }
    let more = stand.iter().filter(|one| asked.link(&one.link).is_none());
    document.differs.extend(more.map(|one| {
        let place = format!("link {}", one.link);
        let said = ["nothing of this name".to_owned(), format!("it stands on {}", one.interface)];
        Found::new("policy", &place, said, &format!("altq stop {}", one.link))
    }));
    done(args, document)
}

/// Prints what was found, and says how that ends.
fn done(args: &Args, document: Document) -> anyhow::Result<Exit> {
    document.print(args.json)?;
    let unchecked = document.links.iter().any(|link| !link.unchecked.is_empty());
    Ok(match (document.count(), unchecked) {
        (1.., _) => Exit::Differs,
        // Not to have seen a difference is no proof.
        (0, true) => Exit::Unsupported,
        (0, false) => Exit::Ok,
    })
}

/// The JSON Schema of `altq.verify/1`.
#[cfg(test)]
pub fn schema(generator: &schemars::generate::SchemaGenerator) -> schemars::Schema {
    generator.clone().into_root_schema_for::<shown::Json<'_>>()
}
