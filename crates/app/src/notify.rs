//! Tells a service manager how it goes, as sd_notify(3) describes it: datagrams to the socket that
//! NOTIFY_SOCKET names. Without it nothing is told.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use altq_engine::units::Nanos;

/// The service manager, if there is one.
pub struct Manager(Option<UnixDatagram>);

impl Manager {
    /// The one that the environment names.
    pub fn of_environment() -> Manager {
        let name = std::env::var_os("NOTIFY_SOCKET");
        Manager(name.and_then(|name| connect(&name).ok()))
    }

    /// Tells it something: `READY=1`, `STATUS=…`.
    pub fn tell(&self, what: &str) {
        if let Some(socket) = &self.0 {
            // A manager that is not there any more does not miss it.
            let _ = socket.send(what.as_bytes());
        }
    }
}

/// When the manager is told that all goes well: often enough for it, and no oftener, because it is
/// woken each time.
pub struct Pulse {
    every: Nanos,
    next: Nanos,
}

impl Pulse {
    /// Three times within the time that the manager waits. The first time is due at once.
    pub fn new(patience: Duration) -> Pulse {
        Pulse { every: u64::try_from(patience.as_nanos() / 3).unwrap_or(Nanos::MAX), next: 0 }
    }

    /// True if it is to be told now.
    pub fn due(&mut self, now: Nanos) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now.saturating_add(self.every);
        }
        due
    }

    /// When it is to be told next.
    pub fn next(&self) -> Nanos {
        self.next
    }
}

/// Within which time the manager wants to be told `WATCHDOG=1`; `None` if it does not.
pub fn watchdog() -> Option<Duration> {
    let pid = std::env::var("WATCHDOG_PID").ok();
    if pid.is_some_and(|pid| pid != std::process::id().to_string()) {
        return None;
    }
    let time = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (time > 0).then(|| Duration::from_micros(time))
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A slow manager must not hold anybody up.
    socket.set_nonblocking(true)?;
    match name.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(name)?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The supervisor looks around at each beat of its worker, every 25 ms.
    #[test]
    fn a_manager_is_told_as_often_as_it_needs() {
        let mut pulse = Pulse::new(Duration::from_secs(9));
        let told: Vec<u64> = (0..400).map(|beat| beat * 25).filter(|ms| pulse.due(ms * 1_000_000)).collect();
        assert_eq!(told, [0, 3000, 6000, 9000]);
        assert_eq!(pulse.next(), 12_000_000_000);
    }

    #[test]
    fn a_manager_hears_what_it_is_told() {
        let name = format!("altq-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (heard, address) in [(by_path, path.clone().into_os_string()), (by_name, format!("@{name}").into())] {
            Manager(Some(connect(&address).unwrap())).tell("READY=1");
            let mut bytes = [0; 100];
            let count = heard.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..count], b"READY=1");
        }
        std::fs::remove_file(path).unwrap();
        assert!(connect(OsStr::new("/nowhere/at/all")).is_err());
        Manager(None).tell("READY=1");
    }
}
