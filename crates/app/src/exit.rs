//! Exit codes, the same for every command.

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
    /// The request was refused: by a limit, or because there is no room.
    Refused = 5,
    /// Not permitted. A command that needs root and does not have it exits with `Unsupported`.
    NotPermitted = 6,
    /// This host cannot do it.
    Unsupported = 7,
}
