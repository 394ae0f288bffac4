//! Queries about a network interface.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use super::check;
use super::table::Table;

/// An interface, found by name in the calling thread's network namespace.
#[derive(Debug)]
pub struct Interface {
    /// Its name when it was found.
    pub name: String,
    /// Its index, which stays the same when it is renamed.
    pub index: u32,
    query: OwnedFd,
    /// The statistics of all interfaces, once they have been asked for.
    statistics: OnceLock<Table>,
}

/// What an interface tells about its driver. The fields are empty if it tells nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The driver's name.
    pub name: String,
    /// Where the device is (`0000:00:03.0`). Empty for an interface that is no device of its own: a
    /// VLAN, a bridge of the kernel, an end of a veth pair.
    pub bus: String,
}

/// ETHTOOL_GLINK: whether there is a carrier.
const GLINK: u32 = 0x0a;

/// Whether an interface can carry frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It can.
    Up,
    /// It is set down.
    Down,
    /// It is up, but its cable is out or its peer is down.
    NoCarrier,
    /// It no longer exists.
    Gone,
}

/// A socket by which the kernel is asked about interfaces.
fn asking() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .or_else(|_| socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None))
}

impl Interface {
    /// Finds an interface.
    ///
    /// # Errors
    /// ENODEV if there is none of that name; an error without a number if it is another name of an
    /// interface (`ip link property add … altname …`). Rules of the firewall and tables of the
    /// kernel do not know such names.
    pub fn find(name: &str) -> io::Result<Interface> {
        Interface::by(asking()?, name)
    }

    /// The name that the interface with this index has now, in the calling thread's network
    /// namespace; `None` if there is none.
    pub fn name_of(index: u32) -> Option<String> {
        let name = netdevice::index_to_name_inlined(asking().ok()?, index).ok()?;
        Some(name.as_str().to_owned())
    }

    /// Finds an interface of the same network namespace by the socket of this one.
    ///
    /// # Errors
    /// As [`find`](Interface::find).
    pub fn other(&self, name: &str) -> io::Result<Interface> {
        Interface::by(self.query.try_clone()?, name)
    }

    fn by(query: OwnedFd, name: &str) -> io::Result<Interface> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let index = netdevice::name_to_index(&query, name)?;
        let real = netdevice::index_to_name_inlined(&query, index)?;
        if real.as_str() != name {
            let real = real.as_str();
            let message = format!("`{name}` is another name of the interface `{real}`; write `{real}`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Interface { name: name.to_owned(), index, query, statistics: OnceLock::new() })
    }

    /// Whether it can carry frames.
    pub fn state(&self) -> State {
        let flags = self.ask(libc::SIOCGIFFLAGS as libc::Ioctl, |request| {
            // SAFETY: SIOCGIFFLAGS fills this member of the union; every bit pattern is an i16.
            i32::from(unsafe { request.ifr_ifru.ifru_flags })
        });
        match flags {
            Err(_) => State::Gone,
            Ok(flags) if flags & libc::IFF_UP == 0 => State::Down,
            // IFF_RUNNING may be a second late. The driver knows at once, if it answers ethtool.
            Ok(flags) => match self.ethtool(GLINK) {
                Some(true) => State::Up,
                None if flags & libc::IFF_RUNNING != 0 => State::Up,
                _ => State::NoCarrier,
            },
        }
    }

    /// True if it is in the promiscuous mode that lasts until it is ended (`ip link set dev IF
    /// promisc on`). That of sockets is not shown.
    pub fn is_promiscuous(&self) -> bool {
        let flags = self.ask(libc::SIOCGIFFLAGS as libc::Ioctl, |request| {
            // SAFETY: as in `state`.
            i32::from(unsafe { request.ifr_ifru.ifru_flags })
        });
        flags.is_ok_and(|flags| flags & libc::IFF_PROMISC != 0)
    }

    /// Its MTU (layer 3), in bytes.
    ///
    /// # Errors
    /// ENODEV if it is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        // SAFETY: SIOCGIFMTU fills this member of the union; every bit pattern is an i32.
        self.ask(libc::SIOCGIFMTU as libc::Ioctl, |request| unsafe { request.ifr_ifru.ifru_mtu })
            .map(|mtu| mtu.max(0) as u32)
    }

    /// The most packets that its own queue holds (txqueuelen).
    ///
    /// # Errors
    /// ENODEV if it is gone.
    pub fn queue_length(&self) -> io::Result<u32> {
        /// Of linux/sockios.h; libc lacks it.
        const SIOCGIFTXQLEN: libc::Ioctl = 0x8942;
        // SAFETY: SIOCGIFTXQLEN fills `ifr_qlen`, an i32 at the place of this member of the union;
        // every bit pattern is one.
        self.ask(SIOCGIFTXQLEN, |request| unsafe { request.ifr_ifru.ifru_mtu }).map(|length| length.max(0) as u32)
    }

    /// Which super-packets it receives (GRO, LRO), accepts for sending (GSO) and segments itself
    /// (TSO), with ethtool's names.
    pub fn offloads(&self) -> [(&'static str, Option<bool>); 4] {
        // ETHTOOL_GGRO, ETHTOOL_GGSO and ETHTOOL_GTSO; and ETH_FLAG_LRO of ETHTOOL_GFLAGS.
        let large = self.ethtool_value(0x25).map(|flags| flags & (1 << 15) != 0);
        [("gro", self.ethtool(0x2b)), ("gso", self.ethtool(0x23)), ("tso", self.ethtool(0x1e)), ("lro", large)]
    }

    /// The answer to one of ethtool's yes-or-no commands (ETHTOOL_G* of ethtool.h); `None` if the
    /// driver does not answer.
    pub fn ethtool(&self, command: u32) -> Option<bool> {
        self.ethtool_value(command).map(|value| value != 0)
    }

    /// The same for a command that is answered by a number.
    fn ethtool_value(&self, command: u32) -> Option<u32> {
        #[repr(C)]
        struct EthtoolValue {
            cmd: u32,
            data: u32,
        }
        let mut value = EthtoolValue { cmd: command, data: 0 };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: for the ETHTOOL_G* commands of this form the kernel reads and writes one
        // ethtool_value behind ifr_data, and both live until the call returns. rustix has no
        // ethtool.
        let done = check(unsafe { libc::ioctl(self.query.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) });
        done.ok().map(|_| value.data)
    }

    /// The rate of its line in bit/s, as its driver says (ETHTOOL_GSET); `None` if it does not say,
    /// or has no carrier.
    pub fn speed(&self) -> Option<u64> {
        const GSET: u32 = 0x01;
        /// `struct ethtool_cmd` of linux/ethtool.h.
        #[repr(C)]
        struct Settings {
            cmd: u32,
            modes: [u32; 2],
            speed: u16,
            ports: [u8; 6],
            packets: [u32; 2],
            speed_high: u16,
            crossed: [u8; 2],
            others: [u32; 3],
        }
        let (modes, ports, packets, crossed, others) = ([0; 2], [0; 6], [0; 2], [0; 2], [0; 3]);
        let mut settings = Settings { cmd: GSET, modes, speed: 0, ports, packets, speed_high: 0, crossed, others };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut settings).cast();
        // SAFETY: for ETHTOOL_GSET the kernel reads and writes one ethtool_cmd of 44 bytes behind
        // ifr_data, and both live until the call returns. rustix has no ethtool.
        check(unsafe { libc::ioctl(self.query.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) }).ok()?;
        // In Mbit/s. -1 is SPEED_UNKNOWN, in 16 bits or in 32; some drivers say 0.
        match u32::from(settings.speed_high) << 16 | u32::from(settings.speed) {
            0 | 0xffff | u32::MAX => None,
            speed => Some(u64::from(speed) * 1_000_000),
        }
    }

    /// Its driver (ETHTOOL_GDRVINFO).
    pub fn driver(&self) -> Driver {
        const GDRVINFO: u32 = 0x03;
        /// `struct ethtool_drvinfo` of linux/ethtool.h.
        #[repr(C)]
        struct DriverInfo {
            cmd: u32,
            driver: [u8; 32],
            versions: [u8; 64],
            bus: [u8; 32],
            others: [u8; 64],
        }
        let mut info = DriverInfo { cmd: GDRVINFO, driver: [0; 32], versions: [0; 64], bus: [0; 32], others: [0; 64] };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut info).cast();
        // SAFETY: for ETHTOOL_GDRVINFO the kernel reads and writes one ethtool_drvinfo of 196 bytes
        // behind ifr_data, and both live until the call returns. rustix has no ethtool.
        let done = check(unsafe { libc::ioctl(self.query.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) });
        if done.is_err() {
            return Driver::default();
        }
        let text = |bytes: &[u8]| {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
            String::from_utf8_lossy(text).into_owned()
        };
        let bus = text(&info.bus);
        Driver { name: text(&info.driver), bus: if bus == "N/A" { String::new() } else { bus } }
    }

    /// The most queues that it may receive from, or send by, as its driver tells
    /// (ETHTOOL_GCHANNELS); 1 if the driver does not tell.
    pub fn queues(&self) -> usize {
        const GCHANNELS: u32 = 0x3c;
        /// `struct ethtool_channels` of linux/ethtool.h.
        #[repr(C)]
        struct Channels {
            cmd: u32,
            most: [u32; 4],
            receive: u32,
            send: u32,
            other: u32,
            combined: u32,
        }
        let mut channels = Channels { cmd: GCHANNELS, most: [0; 4], receive: 0, send: 0, other: 0, combined: 0 };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        // SAFETY: for ETHTOOL_GCHANNELS the kernel reads and writes one ethtool_channels behind
        // ifr_data, and both live until the call returns. rustix has no ethtool.
        let done = check(unsafe { libc::ioctl(self.query.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) });
        match done {
            Ok(_) => (channels.receive.max(channels.send).saturating_add(channels.combined) as usize).max(1),
            Err(_) => 1,
        }
    }

    /// True if it takes the VLAN tag off frames that come in (`rxvlan` of ethtool).
    pub fn takes_tags_off(&self) -> bool {
        const GFLAGS: u32 = 0x25;
        const RXVLAN: u32 = 1 << 8;
        self.ethtool_value(GFLAGS).is_some_and(|flags| flags & RXVLAN != 0)
    }

    /// Frames that the device accepted for sending and then dropped, from its statistics; `None` if
    /// it has none.
    pub fn dropped_on_sending(&self) -> Option<u64> {
        // The thread that opens the table runs in the interface's namespace. Columns: 8 of
        // reception, then bytes, packets, errors, drops.
        let table = self.statistics.get_or_init(|| Table::open("/proc/thread-self/net/dev")).read();
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&self.name)?.strip_prefix(':'))?;
        line.split_whitespace().nth(11)?.parse().ok()
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: ifreq is plain old data, for which all zeroes are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // `find` made sure that the name fits with a zero behind it.
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    fn ask(&self, what: libc::Ioctl, answer: impl Fn(&libc::ifreq) -> i32) -> io::Result<i32> {
        let mut request = self.request();
        // SAFETY: SIOCGIF* read the name from, and write their answer to, one ifreq, which outlives
        // the call. rustix has only the calls between names and numbers.
        check(unsafe { libc::ioctl(self.query.as_raw_fd(), what, &raw mut request) })?;
        Ok(answer(&request))
    }
}

/// The names of all interfaces in the network namespace of the calling thread.
///
/// # Errors
/// /proc cannot be read.
pub fn names() -> io::Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    // Two lines of headings.
    let names = table.lines().skip(2).filter_map(|line| line.split(':').next());
    Ok(names.map(|name| name.trim().to_owned()).collect())
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.query.as_fd()
    }
}
