//! Exit codes, the same for every command.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// It failed while running.
    Failed = 1,
    /// Wrong usage, or a configuration error; nothing was started.
    Usage = 2,
    /// Differences were found, or an expectation did not hold.
    Differs = 3,
    /// Somebody said no: a cap, or no room.
    Refused = 5,
    /// Not permitted. What lacks root here is said with 7, since a host without the right lacks the
    /// feature.
    NotPermitted = 6,
    /// This host cannot do it.
    Unsupported = 7,
}
