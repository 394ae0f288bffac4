//! `altq stop`.

use altq_dataplane::bridge::{left_hooks, lift_hook, sweep_left};
use altq_dataplane::kernel::{self, Remains, detached, stop};
use altq_dataplane::nfqueue::steer::left::{Left, left, lift};

use crate::exit::Exit;

/// Options of `altq stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the link that `altq run --detach` set up, or the interface at which a killed altq
    /// has left rules, qdiscs or a program [default: all that have no process]
    #[arg(value_name = "LINK")]
    link: Option<String>,
}

/// Runs the command: removes what `altq run --detach` set up in this network namespace, and what a
/// killed process has left: qdiscs, programs that forward for a bridge, and rules of the firewall,
/// which may hold packets back.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    // What does not depend on the firewall's rules is looked for all the same.
    let mut ended = Exit::Ok;
    let rules = left().unwrap_or_else(|error| {
        eprintln!("altq stop: {error}");
        ended = Exit::of_link(&error);
        Vec::new()
    });
    let (all, Remains { left: qdiscs, unsure, away }, hooks) = (detached()?, kernel::remains(), left_hooks());
    let bridges = if args.link.is_none() { sweep_left() } else { Vec::new() };
    for name in &bridges {
        eprintln!("altq stop: the bridge {name} that a killed altq has left is gone");
    }
    let named = |name: &str| args.link.as_ref().is_none_or(|link| link == name);
    let chosen: Vec<_> = all.iter().filter(|one| named(&one.link)).collect();
    let of = |found: &[Left]| found.iter().filter(|one| named(&one.interface)).cloned().collect::<Vec<Left>>();
    let (lifted, cleared) = (of(&rules), of(&qdiscs));
    let doubtful: Vec<&String> = unsure.iter().filter(|name| named(name)).collect();
    let (away, is) = (away.join(", "), if away.len() == 1 { "is" } else { "are" });
    for name in &doubtful {
        eprintln!(
            "altq stop: what leaves by {name} is still shaped: {name} may be another name of what a process shapes as \
             {away}, which {is} away; stop that process first, or if it is not, `tc qdisc del dev {name} root` takes \
             the qdiscs away"
        );
    }
    if args.link.is_some() && ended == Exit::Ok && !doubtful.is_empty() {
        ended = Exit::Refused;
    }
    let taken: Vec<&String> = hooks.iter().filter(|name| named(name)).collect();
    if chosen.is_empty() && lifted.is_empty() && cleared.is_empty() && taken.is_empty() {
        let links = all.iter().map(|one| one.link.as_str());
        let interfaces = rules.iter().chain(&qdiscs).map(|one| one.interface.as_str());
        let others = hooks.iter().chain(&unsure).map(String::as_str);
        let mut names: Vec<&str> = links.chain(interfaces).chain(others).collect();
        names.dedup();
        match &args.link {
            _ if ended != Exit::Ok => {}
            Some(name) if names.is_empty() => eprintln!("altq stop: no link `{name}` stands here; none does"),
            Some(name) => eprintln!("altq stop: no link `{name}` stands here; these do: {}", names.join(", ")),
            None if bridges.is_empty() && doubtful.is_empty() => eprintln!("altq stop: no link stands here"),
            None => {}
        }
        return Ok(if args.link.is_some() && ended == Exit::Ok { Exit::Usage } else { ended });
    }
    for one in chosen {
        match stop(one) {
            Ok(true) => eprintln!("altq stop: link {} is gone from {}", one.link, one.interface),
            Ok(false) => eprintln!("altq stop: link {} was gone from {} already", one.link, one.interface),
            Err(error) => {
                eprintln!("altq stop: link {}: {error}", one.link);
                ended = Exit::of_link(&error);
            }
        }
    }
    let lifted = lifted.iter().map(|one| (one, "rules", lift(one)));
    for (one, what, done) in lifted.chain(cleared.iter().map(|one| (one, "qdiscs", kernel::lift(one)))) {
        let does = if one.ingress { "what comes in at" } else { "what leaves by" };
        match done {
            Ok(()) => {
                eprintln!("altq stop: {does} {} passes unshaped: the {what} that were left are gone", one.interface)
            }
            Err(error) => {
                eprintln!("altq stop: {does} {}: {error}", one.interface);
                ended = Exit::of_link(&error);
            }
        }
    }
    for name in taken {
        match lift_hook(name) {
            Ok(_) => eprintln!(
                "altq stop: what comes in at {name} is no longer forwarded: the program that a killed altq has left \
                 is gone"
            ),
            Err(error) => {
                eprintln!("altq stop: what comes in at {name}: {error}");
                ended = Exit::of_link(&error);
            }
        }
    }
    Ok(ended)
}
