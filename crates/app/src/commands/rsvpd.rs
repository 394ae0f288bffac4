//! `altq rsvpd`: the RSVP daemon (docs/rsvp.md).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use altq_control::rights::Writers;
use altq_dataplane::confine::{User, keep_raw_sockets};
use altq_dataplane::signal;
use altq_rsvpd::{Clients, Daemon, Settings};
use anyhow::Context as _;

use crate::commands::rsvp::RsvpSocket;
use crate::commands::run::confined::{USERS, find_user};
use crate::commands::run::listen::{self, Wanted};
use crate::exit::Exit;
use crate::notify::Manager;
use crate::socket::Socket;

/// The configuration where nobody names one.
const FILE: &str = "/etc/altq/rsvpd.toml";

/// Options of `altq rsvpd`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file lists interfaces, the classes of the policy below which reservations are made for what
leaves by them, neighbours and keys; docs/rsvp.md has all of it:
  [[interface]]
  name = \"eth1\"
  class = \"down/res\"
  neighbours = [\"10.0.12.2\"]

It needs CAP_NET_RAW to start, and gives up all other rights. A neighbour's reservations are made in
the altq that runs (`altq run`), which may be started before or after it.

Exit codes: 0 ended by a signal, 1 failed, 2 the file is wrong, 5 another daemon answers on the
socket, 6 not permitted, 7 an interface is not there, or this kernel has no router alert.")]
pub struct Args {
    /// The configuration
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    own: RsvpSocket,
    /// The group that owns the daemon's socket [default: altq, if there is one]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The user to become. It must be the one that altq runs as: nobody else may reserve in the
    /// name of neighbours [default: whose altq's control socket is, if this is root and the socket
    /// is there]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let signals = signal::Watch::new().context("signals cannot be watched")?;
    let settings = match Settings::open(&args.file) {
        Ok(settings) => settings,
        Err(why) => return Ok(fail(&why, Exit::Usage)),
    };
    let (altq, _) = args.socket.path();
    let user = match user(args.user.as_deref(), &altq) {
        Ok(user) => user,
        Err(why) => return Ok(fail(&why, Exit::Usage)),
    };
    let names: Vec<String> = settings.interfaces.iter().map(|listed| listed.name.clone()).collect();
    // Nobody need read the log from now on: neither neighbours nor clients wait for that. It comes
    // before the rights are given up, without which a pipe of root's cannot be opened again.
    crate::say::never_wait("altq rsvpd");
    let mut daemon = Daemon::open(settings, altq, say)?;
    let path = args.own.path();
    let wanted = Wanted { path: &path, group: args.group.as_deref(), mode: 0o660 };
    let opened = match listen::open(&wanted) {
        Ok(opened) => opened,
        // The same words as those of altq's own socket, which has another option.
        Err(problem) => return Ok(fail(&problem.message.replace("--socket", "--rsvp-socket"), problem.exit)),
    };
    keep_raw_sockets(user)?;
    let owner = user.map_or(opened.writers.owner, |user| user.user);
    let listener = opened.listener.try_clone().context("the daemon's socket")?;
    let mut clients = Clients::new(listener, Writers { owner, ..opened.writers }).context("the daemon's socket")?;
    let manager = Manager::of_environment();
    manager.tell("READY=1");
    say(&format!("RSVP at {}", names.join(", ")));
    daemon.run(&mut clients, &signals)?;
    manager.tell("STOPPING=1");
    Ok(Exit::Ok)
}

/// Writes a line to standard error.
fn say(line: &str) {
    eprintln!("altq rsvpd: {line}");
}

fn fail(why: &str, exit: Exit) -> Exit {
    say(why);
    exit
}

/// The user to become; `None` to stay who this is.
fn user(name: Option<&str>, altq: &Path) -> Result<Option<User>, String> {
    if let Some(name) = name {
        let users = std::fs::read_to_string(USERS).unwrap_or_default();
        let found = find_user(&users, name);
        return found.map(Some).ok_or_else(|| format!("--user {name}: {USERS} has no such user"));
    }
    // Without capabilities root may not use the socket of somebody else.
    let found = std::fs::metadata(altq).ok().filter(|_| rustix::process::geteuid().is_root());
    Ok(found.filter(|found| found.uid() != 0).map(|found| User { user: found.uid(), group: found.gid() }))
}
