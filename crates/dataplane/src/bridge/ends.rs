//! The two interfaces of a direction, and whether they still exist. One that goes down, or whose
//! cable is pulled, is waited for: its sockets work again once it is back. One that is gone ends
//! the direction.

use std::time::Duration;

use altq_engine::units::{Nanos, SECOND};

use crate::error::Error;
use crate::sys::interface::{Interface, State};
use crate::sys::wait::now;

/// Time between two checks that the interfaces still exist.
const LOOK: Nanos = SECOND / 2;
/// Time after which sending is tried again at an interface that is down.
const DOWN: Nanos = SECOND / 20;
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
    /// One was found down, and neither has been seen up since.
    down: bool,
    /// Whether the second one had a carrier when it was last checked.
    pub carrier: bool,
}

impl Ends {
    pub fn new(from: Interface, to: Interface) -> Ends {
        Ends { from, to, look_at: now(), down: false, carrier: true }
    }

    /// When to check them again.
    pub fn look_at(&self) -> Nanos {
        self.look_at
    }

    /// Checks at intervals that both interfaces exist. The error says which one does not. True if
    /// it was time for a check.
    pub fn look_if_due(&mut self, now: Nanos) -> Result<bool, Error> {
        let due = now >= self.look_at;
        if due {
            self.look()?;
        }
        Ok(due)
    }

    fn look(&mut self) -> Result<(), Error> {
        self.look_at = now() + LOOK;
        let states = [self.from.state(), self.to.state()];
        if let Some((_, interface)) =
            states.iter().zip([&self.from, &self.to]).find(|(state, _)| **state == State::Gone)
        {
            return Err(Error::Interface { name: interface.name.clone(), state: "is gone" });
        }
        self.down &= states.contains(&State::Down);
        self.carrier = states[1] != State::NoCarrier;
        Ok(())
    }

    /// When to send again if the second interface has no carrier now: its cable is out. The kernel
    /// drops what is sent meanwhile. `None` if it has one.
    pub fn without_carrier(&self) -> Option<Nanos> {
        (self.to.state() == State::NoCarrier).then(|| now() + DOWN)
    }

    /// A call failed because an interface is down or gone. Returns when to try again.
    ///
    /// # Errors
    /// [`Error::Interface`]: it is gone.
    pub fn down(&mut self) -> Result<Nanos, Error> {
        if !self.down {
            // An interface that is being removed goes down first. After a short wait its state
            // shows whether it is only down, or gone.
            std::thread::sleep(GOING);
            self.down = true;
        }
        self.look()?;
        Ok(now() + DOWN)
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
    Err(Error::NotReady { name: interface.name.clone(), state })
}
