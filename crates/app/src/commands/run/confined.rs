//! A worker gives up what it no longer needs once everything is open (docs/service.md).

use altq_config::{Link, Path};
use altq_dataplane::confine::{Needs, User, confine};
use rustix::process::{Pid, Signal, set_parent_process_death_signal};

use crate::exit::Exit;

/// The default user that a worker becomes, if there is such a user.
const USER: &str = "altq";
/// Where the host lists its users.
pub const USERS: &str = "/etc/passwd";

/// Gives up the user, capabilities, files and system calls that loops of these links do not need.
/// `name`: the user to become. `realtime`: whether loops have real-time priority. `parent`: the
/// supervisor. If that is killed, the kernel kills this process.
///
/// # Errors
/// The exit code, after a message: there is no such user, or the process may not become it.
pub fn give_up(links: &[&Link], name: Option<&str>, realtime: bool, parent: Option<Pid>) -> Result<(), Exit> {
    let fail = |message: String, exit: Exit| {
        eprintln!("altq run: {message}");
        exit
    };
    let user = user(name).map_err(|message| fail(message, Exit::Usage))?;
    let any = |path: Path| links.iter().any(|link| link.path() == Some(path));
    let needs = Needs { verdicts: any(Path::Nfqueue), qdiscs: any(Path::Kernel), realtime };
    let notes = confine(user, needs, parent).map_err(|error| fail(error.to_string(), Exit::of_link(&error)))?;
    if user.is_none() && rustix::process::geteuid().is_root() {
        eprintln!("altq run: there is no user `{USER}`, so the worker stays root; `useradd --system {USER}` makes one");
    }
    for note in notes {
        eprintln!("altq run: the worker is confined less than it could be: {note}");
    }
    Ok(())
}

/// A worker that keeps its rights takes its rules away when its supervisor has been killed. If it
/// is stopped then, it has to go on for that.
pub fn go_on_for_the_end() {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::CONT)) {
        eprintln!("altq run: the worker may outlive its supervisor while it is stopped ({error})");
    }
}

/// The user to become; `None`: stay the same user.
fn user(name: Option<&str>) -> Result<Option<User>, String> {
    let root = rustix::process::geteuid().is_root();
    if name.is_none() && !root {
        // Whoever started altq has chosen the user.
        return Ok(None);
    }
    let users = std::fs::read_to_string(USERS).unwrap_or_default();
    let found = find_user(&users, name.unwrap_or(USER));
    match name {
        Some(name) if found.is_none() => {
            Err(format!("--user {name}: {USERS} has no such user; `useradd --system {name}` makes it"))
        }
        _ => Ok(found),
    }
}

/// A user in a list in the format of passwd(5).
pub fn find_user(users: &str, name: &str) -> Option<User> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let fields = lines.find(|fields| fields.first() == Some(&name))?;
    Some(User { user: fields.get(2)?.parse().ok()?, group: fields.get(3)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let list = "root:x:0:0:root:/root:/bin/sh\naltq:x:987:654::/nonexistent:/usr/sbin/nologin\nbroken:x:1\n";
        let found = |name: &str| find_user(list, name).map(|found| (found.user, found.group));
        assert_eq!([found("root"), found("altq")], [Some((0, 0)), Some((987, 654))]);
        assert_eq!([found("broken"), found("nobody"), found("")], [None; 3]);
    }
}
