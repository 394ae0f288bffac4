//! Links that were set up by a process that has ended: which link is on which interface.
//!
//! A file for each link, in a folder of `/run` for each network namespace, holds the interface and
//! the direction. Like qdiscs, it is gone after a restart of the host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use altq_config::{Device, Link};

use super::{find, host, open, set_up, take_away, tree};
use crate::error::Error;
use crate::lock::Lock;
use crate::nfqueue::steer;

/// The folder of the files.
const FOLDER: &str = "/run/altq/kernel";

/// A link that is set up and has no process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The link.
    pub link: String,
    /// Its interface.
    pub interface: String,
    /// True if it shapes what comes in there.
    pub ingress: bool,
}

/// The folder of this network namespace, which has the number of an inode.
pub(super) fn folder() -> io::Result<PathBuf> {
    let namespace = fs::read_link("/proc/thread-self/ns/net")?;
    let digits = |c: &char| c.is_ascii_digit();
    let number: String = namespace.to_string_lossy().chars().filter(digits).collect();
    Ok(Path::new(FOLDER).join(number))
}

/// All such links, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn detached() -> Result<Vec<Detached>, Error> {
    let io = |error| Error::of("reading which links stand", error);
    let entries = match fs::read_dir(folder().map_err(io)?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io)?;
        let text = match fs::read_to_string(entry.path()) {
            // Another process has just removed the link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(io)?,
        };
        let mut words = text.split_whitespace();
        let Some(interface) = words.next() else { continue };
        found.push(Detached {
            link: entry.file_name().to_string_lossy().into_owned(),
            interface: interface.to_owned(),
            ingress: words.next() == Some("ingress"),
        });
    }
    found.sort_by(|one, other| one.link.cmp(&other.link));
    Ok(found)
}

/// The link that was set up on an interface for a direction, if there is one.
///
/// # Errors
/// As [`detached`].
pub(super) fn on(name: &str, ingress: bool) -> Result<Option<Detached>, Error> {
    Ok(detached()?.into_iter().find(|one| one.interface == name && one.ingress == ingress))
}

/// Sets up links and leaves them. A link that was on another interface is removed there once all
/// stand. After an error, the links that were already set up are removed again, unless they
/// replaced others. That only the kernel can refuse: links that it cannot execute are found before
/// anything is set up. Rules of the firewall that a killed process has left for these interfaces go
/// in any case.
///
/// # Errors
/// As [`set_up`]; [`Error::Link`] for a link that the kernel does not execute.
pub fn detach(links: &[&Link]) -> Result<Vec<Detached>, Error> {
    let mut ask = open()?;
    for link in links {
        let Some(Device::Interface { name, ingress }) = &link.device else {
            return Err(Error::Link(format!("link `{}` has no interface to stand on", link.name)));
        };
        let _lock = Lock::take(name, *ingress)?;
        find(name)?;
        tree::check(link, &host(&mut ask, name)?)?;
    }
    let folder = folder().map_err(|error| Error::of("finding this network namespace", error))?;
    let before = detached()?;
    let (mut done, mut elsewhere): (Vec<(Detached, bool)>, Vec<Detached>) = (Vec::new(), Vec::new());
    let result = (|| -> Result<(), Error> {
        for link in links {
            let Some(Device::Interface { name, ingress }) = &link.device else { continue };
            let _lock = Lock::take(name, *ingress)?;
            // Rules that a killed process has left, of another path, may hold packets back.
            steer::sweep(name, *ingress)?;
            set_up(name, *ingress, link)?;
            let there = before.iter().any(|other| other.interface == *name && other.ingress == *ingress);
            let set = Detached { link: link.name.clone(), interface: name.clone(), ingress: *ingress };
            done.push((set.clone(), there));
            for other in detached()? {
                let here = other.interface == *name && other.ingress == *ingress;
                if here {
                    // A link of another name was on this interface.
                    let _ = fs::remove_file(folder.join(&other.link));
                } else if other.link == link.name {
                    // The link itself was on another interface.
                    elsewhere.push(other);
                }
            }
            let noted = fs::create_dir_all(&folder).and_then(|()| note(&folder, &set));
            noted.map_err(|error| Error::of("noting which links stand", error))?;
        }
        let taken = |one: &&Detached| {
            done.iter().any(|(set, _)| (&set.interface, set.ingress) == (&one.interface, one.ingress))
        };
        for other in elsewhere.iter().filter(|one| !taken(one)) {
            // The note of that name is already about the new place.
            let _lock = Lock::take(&other.interface, other.ingress)?;
            match take_away(&other.interface, other.ingress) {
                Err(Error::NoInterface { .. }) => {}
                gone => _ = gone?,
            }
        }
        Ok(())
    })();
    if let Err(error) = result {
        for (set, _) in done.iter().filter(|(_, there)| !there) {
            // The first error is shown.
            let _ = stop(set);
        }
        for other in &elsewhere {
            // It still stands where it was.
            let _ = fs::create_dir_all(&folder).and_then(|()| note(&folder, other));
        }
        return Err(error);
    }
    Ok(done.into_iter().map(|(set, _)| set).collect())
}

/// Notes that a link stands.
fn note(folder: &Path, one: &Detached) -> io::Result<()> {
    let direction = if one.ingress { " ingress" } else { "" };
    fs::write(folder.join(&one.link), format!("{}{direction}\n", one.interface))
}

/// Removes a link. False if its interface has nothing of altq's any more.
///
/// # Errors
/// As [`take_away`]; [`Error::Held`] if a process shapes there now.
pub fn stop(detached: &Detached) -> Result<bool, Error> {
    let _lock = Lock::take(&detached.interface, detached.ingress)?;
    let gone = match take_away(&detached.interface, detached.ingress) {
        // The interface has gone, and its qdiscs with it.
        Err(Error::NoInterface { .. }) => false,
        gone => gone?,
    };
    let io = |error| Error::of("noting which links stand", error);
    let folder = folder().map_err(io)?;
    match fs::remove_file(folder.join(&detached.link)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    // The folder stays while other links exist. It must not be left, because a later network
    // namespace may have the same number.
    let _ = fs::remove_dir(&folder);
    Ok(gone)
}
