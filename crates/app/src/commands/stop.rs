//! `altq stop`.

use altq_dataplane::kernel::{detached, stop};

use crate::exit::Exit;

/// Options of `altq stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the link [default: all links that `altq run --detach` set up here]
    #[arg(value_name = "LINK")]
    link: Option<String>,
}

/// Runs the command: takes away what `altq run --detach` set up in this network namespace.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let all = detached()?;
    let chosen: Vec<_> = all.iter().filter(|one| args.link.as_ref().is_none_or(|name| *name == one.link)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|one| one.link.as_str()).collect();
        match &args.link {
            Some(name) if names.is_empty() => eprintln!("altq stop: no link `{name}` stands here; none does"),
            Some(name) => eprintln!("altq stop: no link `{name}` stands here; these do: {}", names.join(", ")),
            None => eprintln!("altq stop: no link stands here"),
        }
        return Ok(if args.link.is_some() { Exit::Usage } else { Exit::Ok });
    }
    let mut ended = Exit::Ok;
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
    Ok(ended)
}
