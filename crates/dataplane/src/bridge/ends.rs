//! The two interfaces of a direction, and whether they still carry frames.

use std::time::Duration;

use altq_engine::units::{Nanos, SECOND};

use crate::error::Error;
use crate::sys::interface::{Interface, State};
use crate::sys::wait::now;

/// Time between two checks that the interfaces still carry frames.
const LOOK: Nanos = SECOND / 2;
/// How long the kernel may take to remove an interface after setting it down. The loop answers
/// nothing meanwhile, so this is less than a supervisor waits for an answer.
const GOING: Duration = Duration::from_millis(50);

/// Where the frames of a direction come in and leave.
pub(super) struct Ends {
    /// Where they come in.
    pub from: Interface,
    /// Where they leave.
    pub to: Interface,
    look_at: Nanos,
}

impl Ends {
    pub fn new(from: Interface, to: Interface) -> Ends {
        Ends { from, to, look_at: now() }
    }

    /// When to check them again.
    pub fn look_at(&self) -> Nanos {
        self.look_at
    }

    /// Checks at intervals that both interfaces carry frames. The error says which one does not.
    /// True if it was time for a check.
    pub fn look_if_due(&mut self, now: Nanos) -> Result<bool, Error> {
        let due = now >= self.look_at;
        if due {
            self.look()?;
        }
        Ok(due)
    }

    fn look(&mut self) -> Result<(), Error> {
        self.look_at = now() + LOOK;
        check(&self.from).and_then(|()| check(&self.to)).map_err(|first| {
            // An interface that is being removed goes down first. After a short wait its state
            // shows whether it is only down, or gone.
            std::thread::sleep(GOING);
            check(&self.from).and_then(|()| check(&self.to)).err().unwrap_or(first)
        })
    }

    /// The error for a call that failed because an interface is down or gone.
    pub fn down(&mut self) -> Error {
        match self.look() {
            Err(error) => error,
            // It was down only for a moment. But frames were lost without being counted, and a
            // packet socket is no longer bound to the interface.
            Ok(()) => Error::Interface {
                name: self.from.name.clone(),
                state: "went down while the bridge ran; start it again",
            },
        }
    }
}

/// Checks that an interface carries frames; the error says why it does not.
pub(super) fn check(interface: &Interface) -> Result<(), Error> {
    let state = match interface.state() {
        State::Up => return Ok(()),
        State::Down => "is down; `ip link set dev NAME up` sets it up",
        State::NoCarrier => "has no carrier: its cable is out, or its peer is down",
        State::Gone => "is gone",
    };
    Err(Error::Interface { name: interface.name.clone(), state })
}
