//! Why a link cannot be opened, or why its loop ended.

use std::io;

use altq_engine::spec::SpecError;

/// Why a link cannot be opened, or why its loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process may not do this.
    #[error("{what} needs root, or {right} ({source}): run it with sudo")]
    NotPermitted {
        /// What was tried.
        what: &'static str,
        /// The capabilities that would be enough.
        right: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The kernel cannot do this.
    #[error("this kernel has no {what} ({source})")]
    Unsupported {
        /// What is missing.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The link cannot be run as it is written. The message has the reason and a way out.
    #[error("{0}")]
    Link(String),
    /// There is no such interface in this network namespace.
    #[error("no interface `{name}` here; `ip link` lists the interfaces")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// An interface is down or has no carrier when a link is to begin.
    #[error("interface `{name}` {state}")]
    NotReady {
        /// Its name.
        name: String,
        /// What is wrong, and a way out.
        state: &'static str,
    },
    /// An interface went away while the link ran, or does not carry what is wanted of it.
    #[error("interface `{name}` {state}")]
    Interface {
        /// Its name.
        name: String,
        /// What is wrong, and a way out.
        state: &'static str,
    },
    /// Another process shapes the same packets.
    #[error("{} shapes what {direction} {name} already; stop it, or its supervisor, first", process(.holder))]
    Held {
        /// The interface.
        name: String,
        /// `comes in at` or `leaves by`.
        direction: &'static str,
        /// The number of the process; 0 if it is not known.
        holder: i32,
    },
    /// No firewall could hand packets to altq, or its rules could not be removed.
    #[error("the firewall: {0}")]
    Steering(String),
    /// AF_XDP was asked for and cannot carry a bridge. The message has the reason and, where there
    /// is one, a way out.
    #[error("no AF_XDP: {0}")]
    Xdp(String),
    /// A loop cannot run on a processor.
    #[error("processor {processor}: no loop can run on it ({source}); `taskset -p $$` shows which ones may be used")]
    Processor {
        /// Its number, from 0.
        processor: usize,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Somebody else's qdisc, device, XDP program or AF_XDP socket is in the way.
    #[error("{0}")]
    Foreign(String),
    /// The kernel does not have a qdisc or a classifier.
    #[error("{0}")]
    Lacks(String),
    /// The kernel refuses a request about qdiscs, or shows something else than was asked for.
    #[error("{0}")]
    Kernel(String),
    /// The engine refuses the link.
    #[error("link `{link}`: {error}")]
    Spec {
        /// The link.
        link: String,
        /// Why.
        error: SpecError,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// A process in words.
fn process(number: &i32) -> String {
    if *number > 0 { format!("process {number}") } else { "another process".to_owned() }
}

impl Error {
    /// Sorts the error of a system call into not permitted, not supported, or failed.
    pub(crate) fn of(what: &'static str, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Error::NotPermitted { what, right: "CAP_NET_RAW and CAP_NET_ADMIN", source }
            }
            Some(libc::ENOSYS | libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
                Error::Unsupported { what, source }
            }
            _ => Error::Io { what, source },
        }
    }

    /// The error of asking for real-time priority.
    pub(crate) fn of_realtime(source: io::Error) -> Error {
        match Error::of("SCHED_FIFO", source) {
            Error::NotPermitted { what, source, .. } => Error::NotPermitted { what, right: "CAP_SYS_NICE", source },
            other => other,
        }
    }

    /// True if the reason is the host, not the policy: a right or a kernel feature is missing.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Error::NotPermitted { .. }
                | Error::Unsupported { .. }
                | Error::Steering(_)
                | Error::Lacks(_)
                | Error::Xdp(_)
        )
    }
}
