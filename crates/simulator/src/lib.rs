//! altq simulator.
