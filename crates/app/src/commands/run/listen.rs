//! Makes the control socket of `altq run`, with its path, owner and mode, and removes it at the
//! end.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_control::client::open_at_once;
use altq_control::rights::{Peer, Writers};
use altq_control::server::{Limits, Server};
use altq_dataplane::credentials;
use altq_dataplane::stop::Stop;

use super::answers::Answers;
use super::heart::Wire;
use super::live::Live;
use crate::exit::Exit;

/// The default group of the socket, if there is such a group.
const GROUP: &str = "altq";
/// Where the host lists its groups.
const GROUPS: &str = "/etc/group";

/// How long the worker of a supervisor that was killed may still have its socket. The supervisor
/// made that, so it is the one that seems to answer; the worker ends with it, in some milliseconds.
const DYING: Duration = Duration::from_secs(2);

/// Path, owner and mode of the socket.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its path.
    pub path: &'a Path,
    /// The group that owns it; `None`: the default one, if it exists.
    pub group: Option<&'a str>,
    /// The mode of its file.
    pub mode: u32,
}

/// Why there is no control socket.
#[derive(Debug)]
pub struct Problem {
    /// The exit code, if the socket is needed.
    pub exit: Exit,
    /// What is wrong, and what to do.
    pub message: String,
}

/// A socket that listens. Dropping it removes its file.
pub struct Opened {
    /// The socket.
    pub listener: UnixListener,
    /// The users that may change things by it.
    pub writers: Writers,
    /// Its file, with the file's device and number, because another altq may have made its own file
    /// there since. `None` if another process has made the socket.
    file: Option<(PathBuf, (u64, u64))>,
}

/// Makes the socket.
///
/// # Errors
/// Somebody else answers there, the file cannot be made, or the group does not exist.
pub fn open(wanted: &Wanted<'_>) -> Result<Opened, Problem> {
    let (listener, group) = make(wanted)?;
    let found = std::fs::symlink_metadata(wanted.path);
    let found = found.map_err(|error| problem(wanted.path, "cannot be looked at", &error))?;
    let file = Some((wanted.path.to_owned(), (found.dev(), found.ino())));
    Ok(Opened { listener, writers: writers(group), file })
}

/// The socket that the supervisor has made. It is the standard input of the worker.
///
/// # Errors
/// The group does not exist, or the descriptor cannot be copied.
pub fn inherited(wanted: &Wanted<'_>) -> Result<Opened, Problem> {
    let group = group(wanted.group)?;
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|error| problem(wanted.path, "cannot be used", &error))?;
    Ok(Opened { listener: UnixListener::from(socket), writers: writers(group), file: None })
}

fn writers(group: Option<u32>) -> Writers {
    Writers { owner: rustix::process::geteuid().as_raw(), group }
}

/// Who is at the other end of a connection.
///
/// # Errors
/// That of the kernel.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    credentials(stream).map(|found| Peer { pid: found.pid, uid: found.uid, groups: found.groups })
}

impl Opened {
    /// Where it is; `None` if another process has made it.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Some((path, file)) = &self.file else { return };
        if std::fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == *file) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A thread that answers while links run. Dropping it ends them.
pub struct Answering {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Answers on a socket, in a thread, until `stop` is set.
///
/// # Errors
/// Those of the socket, and of starting a thread.
pub fn answer(socket: &Opened, live: Arc<Live>, wire: Option<Wire>, stop: &Stop) -> io::Result<Answering> {
    let mut server = Server::new(socket.listener.try_clone()?, socket.writers, Limits::default(), peer)?;
    let stop = stop.for_loop()?;
    let stopped = stop.clone();
    let work = move || {
        if let Err(error) = server.run(&mut Answers::new(live, wire), &stopped) {
            eprintln!("altq run: nobody answers on the control socket any more: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("altq control".to_owned()).spawn(work)?;
    Ok(Answering { stop, thread: Some(thread) })
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the message has been printed.
            let _ = thread.join();
        }
    }
}

/// Makes the socket's file. It first has another name, under which it gets its owner and its mode.
/// It gets its own name last, so nobody can connect before.
fn make(wanted: &Wanted<'_>) -> Result<(UnixListener, Option<u32>), Problem> {
    let path = wanted.path;
    let failed = |what: &str, error: io::Error| problem(path, what, &error);
    let group = group(wanted.group)?;
    free(path)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        match std::fs::create_dir(folder) {
            // The mode is set explicitly, independent of the umask.
            Ok(()) => {
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(folder, mode).map_err(|error| failed("cannot be made", error))?;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("cannot be made", error)),
        }
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let first = PathBuf::from(name);
    let _ = std::fs::remove_file(&first);
    let listener = UnixListener::bind(&first).map_err(|error| failed("cannot be made", error))?;
    let made = own(&first, group, wanted).and_then(|group| {
        let moved = std::fs::rename(&first, path).map_err(|error| failed("cannot be made", error));
        moved.map(|()| group)
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&first);
    }
    made.map(|group| (listener, group))
}

/// Gives a file its group and its mode. Returns the group that it has got.
fn own(file: &Path, group: Option<u32>, wanted: &Wanted<'_>) -> Result<Option<u32>, Problem> {
    let failed = |what: &str, error: io::Error| problem(wanted.path, what, &error);
    let group = match chown(file, None, group) {
        Ok(()) => group,
        // Without root a process can give a file only to its own groups.
        Err(_) if wanted.group.is_none() => None,
        Err(error) => return Err(failed("cannot be given to the group", error)),
    };
    let mode = std::fs::Permissions::from_mode(wanted.mode);
    std::fs::set_permissions(file, mode).map_err(|error| failed("cannot be given its mode", error))?;
    Ok(group)
}

/// Checks that nobody answers at a path, and that nothing but an old socket is there.
fn free(path: &Path) -> Result<(), Problem> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let shown = path.display();
    if !found.file_type().is_socket() {
        let message = format!("control socket {shown}: there is a file that is no socket; --socket chooses another");
        return Err(Problem { exit: Exit::Usage, message });
    }
    let begun = Instant::now();
    let who = loop {
        let who = match open_at_once(path) {
            Ok(stream) => credentials(&stream).map_or(0, |found| found.pid),
            // Somebody listens, and takes no connections.
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Ok(()),
        };
        if who == 0 || !is_gone(&process(who)) || begun.elapsed() > DYING {
            break who;
        }
        std::thread::sleep(DYING / 100);
    };
    let who = if who > 0 { format!("process {who}") } else { "another process".to_owned() };
    let message = format!("control socket {shown}: {who} answers there; --socket chooses another path");
    Err(Problem { exit: Exit::Refused, message })
}

/// The state of a process, as proc(5) has it; empty if there is none.
fn process(number: i32) -> String {
    std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default()
}

/// Whether a process with this state has ended. A zombie has, and only its parent does not know it
/// yet.
fn is_gone(state: &str) -> bool {
    // The name, in parentheses, may have any characters.
    state.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

/// The number of a group.
fn group(name: Option<&str>) -> Result<Option<u32>, Problem> {
    let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
    let number = find_group(&groups, name.unwrap_or(GROUP));
    match (name, number) {
        (Some(name), None) => {
            let number = name.parse().ok();
            let message = format!("--group {name}: {GROUPS} has no such group; `groupadd --system {name}` makes it");
            number.map(Some).ok_or(Problem { exit: Exit::Usage, message })
        }
        (_, number) => Ok(number),
    }
}

/// The number of a group in a list in the format of group(5).
fn find_group(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    lines.find(|fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

fn problem(path: &Path, what: &str, error: &dyn Display) -> Problem {
    let message = format!("control socket {} {what}: {error}", path.display());
    Problem { exit: Exit::Failed, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name() {
        let list = "root:x:0:\naltq:x:987:alice,bob\naltqs:x:1:\nbroken\n";
        for (name, number) in [("altq", Some(987)), ("root", Some(0)), ("alice", None), ("broken", None), ("", None)] {
            assert_eq!(find_group(list, name), number, "{name}");
        }
    }

    #[test]
    fn who_has_ended_is_gone() {
        assert!(is_gone("") && is_gone("7 (altq) Z 1 7") && is_gone("7 (a) b) X 1"));
        assert!(!is_gone("7 (altq) S 1 7") && !is_gone("7 (Z) R 1"));
        assert!(!is_gone(&process(std::process::id() as i32)));
    }

    #[test]
    fn a_socket_is_made_once_and_an_old_one_is_replaced() {
        let folder = std::env::temp_dir().join(format!("altq-listen-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let path = folder.join("altq.sock");
        let wanted = Wanted { path: &path, group: None, mode: 0o600 };
        let (first, _) = make(&wanted).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let refused = make(&wanted).unwrap_err();
        let own = format!("process {} answers there", std::process::id());
        assert!(refused.exit == Exit::Refused && refused.message.contains(&own), "{}", refused.message);
        // As after SIGKILL: the file exists, but nobody answers.
        drop(first);
        let (second, _) = make(&wanted).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        let refused = make(&wanted).unwrap_err();
        assert!(refused.message.contains("no socket"), "{}", refused.message);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
