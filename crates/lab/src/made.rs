//! How a result of the lab was made: the kernel, whether hosts offload segmentation, and the time.

use altq_cases::result::Made;

/// Adds to `made` what only the lab knows: the kernel, whether the hosts sent super-packets
/// (`offload`), and the time now.
pub fn in_lab(made: Made, offload: bool) -> Made {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map(|since| since.as_secs());
    Made { kernel: Some(kernel()), offload: Some(offload), at_unix_s: at.ok(), ..made }
}

/// The running kernel's name and release, as `uname -sr` prints them.
fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}
