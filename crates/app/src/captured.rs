//! Reads captures (pcap, pcapng) for the commands that look at one.

use std::path::Path;

use altq_simulator::sim::Capture;
use anyhow::Context as _;

/// Reads a capture. If its end is cut off, that is said, and what came before is returned. `None`,
/// after a message, if it is no capture. `command`: who asks, for messages.
///
/// # Errors
/// The file cannot be read.
pub fn read(command: &str, path: &Path) -> anyhow::Result<Option<Capture>> {
    let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    match Capture::read(bytes) {
        Ok(capture) => {
            if let Some(cut) = &capture.cut {
                eprintln!("altq {command}: {}: {cut}", path.display());
            }
            Ok(Some(capture))
        }
        Err(error) => {
            eprintln!("altq {command}: {}: {error}", path.display());
            Ok(None)
        }
    }
}
