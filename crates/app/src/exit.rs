//! Exit codes, the same for every command.

use altq_dataplane::Error as LinkError;
#[cfg(feature = "traffic")]
use altq_traffic::Error as TrafficError;
#[cfg(feature = "traffic")]
use rustix::io::Errno;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// The command failed while running.
    Failed = 1,
    /// Wrong usage, or a configuration error; nothing was started.
    Usage = 2,
    /// Differences were found, an expectation did not hold, or a result is INVALID.
    Differs = 3,
    /// Packets of a link pass unshaped, or do not pass (`--fail closed`).
    Bypassed = 4,
    /// The request was refused: by a limit, because there is no room, or because another
    /// process has it.
    Refused = 5,
    /// Not permitted: root or a capability is missing, or a token is wrong.
    NotPermitted = 6,
    /// This host cannot do it: its kernel or a program is missing something, or there is no such
    /// interface, or it is down. Or this altq is built without it.
    Unsupported = 7,
}

impl Exit {
    /// The exit code for an error, by its cause.
    pub fn of(error: &anyhow::Error) -> Exit {
        #[cfg(feature = "experiments")]
        {
            use altq_lab::topology::{NotPermitted, Unsupported};
            if error.is::<NotPermitted>() {
                return Exit::NotPermitted;
            }
            if error.is::<Unsupported>() {
                return Exit::Unsupported;
            }
        }
        #[cfg(feature = "traffic")]
        if let Some(error) = error.downcast_ref::<TrafficError>() {
            return Exit::of_traffic(error);
        }
        error.downcast_ref::<LinkError>().map_or(Exit::Failed, Exit::of_link)
    }

    /// The exit code for a link that cannot be opened, or whose loop ended.
    pub fn of_link(error: &LinkError) -> Exit {
        match error {
            LinkError::NotPermitted { .. } => Exit::NotPermitted,
            // An interface may come later, while a policy that is wrong stays wrong: whoever starts
            // altq again has to tell the two apart (dist/altq.service).
            LinkError::Unsupported { .. }
            | LinkError::Steering(_)
            | LinkError::Lacks(_)
            | LinkError::Xdp(_)
            | LinkError::NoInterface { .. }
            | LinkError::NotReady { .. } => Exit::Unsupported,
            LinkError::Held { .. } | LinkError::Foreign(_) => Exit::Refused,
            LinkError::Link(_) | LinkError::Spec { .. } | LinkError::Processor { .. } => Exit::Usage,
            _ => Exit::Failed,
        }
    }

    /// The exit code for a fault that a running altq, or the connection to it, reports.
    pub fn of_fault(code: altq_control::Code) -> Exit {
        use altq_control::Code;
        match code {
            Code::Failed => Exit::Failed,
            Code::Usage => Exit::Usage,
            Code::Refused => Exit::Refused,
            Code::NotPermitted => Exit::NotPermitted,
            Code::Unsupported => Exit::Unsupported,
        }
    }

    /// The exit code for an error of generators, server or client.
    #[cfg(feature = "traffic")]
    pub fn of_traffic(error: &TrafficError) -> Exit {
        use altq_traffic::Refusal;
        match error {
            TrafficError::Wrong(_) => Exit::Usage,
            TrafficError::Unsupported(_) | TrafficError::Refused { why: Refusal::Unsupported, .. } => Exit::Unsupported,
            TrafficError::NotPermitted(_) | TrafficError::Refused { why: Refusal::Token, .. } => Exit::NotPermitted,
            TrafficError::Refused { why: Refusal::Cap | Refusal::Busy, .. } => Exit::Refused,
            TrafficError::Io { error, .. } => match Errno::from_io_error(error) {
                Some(Errno::PERM | Errno::ACCESS) => Exit::NotPermitted,
                // The kernel has no such protocol, call or option.
                Some(
                    Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOPROTOOPT,
                ) => Exit::Unsupported,
                _ => Exit::Failed,
            },
            _ => Exit::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn faults_have_their_own_number() {
        use altq_control::Code;
        for code in [Code::Failed, Code::Usage, Code::Refused, Code::NotPermitted, Code::Unsupported] {
            assert_eq!(Exit::of_fault(code) as u8, u8::from(code));
        }
    }

    #[test]
    fn a_missing_right_is_6_and_what_the_host_lacks_is_7() {
        let io = |code: Errno| io::Error::from(code);
        let (what, right) = ("sending", "CAP_NET_RAW");
        let mut table: Vec<(anyhow::Error, u8)> = vec![
            (LinkError::NotPermitted { what, right, source: io(Errno::PERM) }.into(), 6),
            (LinkError::Unsupported { what, source: io(Errno::NOSYS) }.into(), 7),
            (LinkError::Xdp("no tags".into()).into(), 7),
            (LinkError::Io { what, source: io(Errno::IO) }.into(), 1),
            (LinkError::Link("no device".into()).into(), 2),
            (LinkError::NoInterface { name: "ppp0".into() }.into(), 7),
            (LinkError::NotReady { name: "eth0".into(), state: "is down" }.into(), 7),
            (LinkError::Interface { name: "eth0".into(), state: "is gone" }.into(), 1),
            (anyhow::anyhow!("something"), 1),
        ];
        #[cfg(feature = "traffic")]
        {
            use altq_traffic::Refusal;
            let traffic = |code| anyhow::Error::from(TrafficError::Io { doing: "a socket".into(), error: io(code) });
            let refused = |why| anyhow::Error::from(TrafficError::Refused { why, reason: "no".into() });
            table.extend([
                (TrafficError::NotPermitted("root only".into()).into(), 6),
                (TrafficError::Unsupported("no such control".into()).into(), 7),
                (traffic(Errno::ACCESS), 6),
                (traffic(Errno::PERM), 6),
                (traffic(Errno::AFNOSUPPORT), 7),
                (traffic(Errno::CONNREFUSED), 1),
                (refused(Refusal::Token), 6),
                (refused(Refusal::Unsupported), 7),
                (refused(Refusal::Cap), 5),
            ]);
        }
        #[cfg(feature = "experiments")]
        {
            use altq_lab::topology::{NotPermitted, Unsupported};
            table.push((NotPermitted("run it with sudo".into()).into(), 6));
            table.push((anyhow::Error::from(NotPermitted("as root".into())).context("the wires"), 6));
            table.push((Unsupported("no namespaces".into()).into(), 7));
        }
        for (error, code) in table {
            assert_eq!(Exit::of(&error) as u8, code, "{error:#}");
        }
    }
}
