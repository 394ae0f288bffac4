//! What is said besides of how a result of the lab was made: the kernel, offloads, and when.

use altq_cases::result::Made;

/// What is said besides of a result of the lab: kernel, offloads, and when.
pub fn in_lab(made: Made, offload: bool) -> Made {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map(|since| since.as_secs());
    Made { kernel: Some(kernel()), offload: Some(offload), at_unix_s: at.ok(), ..made }
}

/// The kernel that runs, as `uname -sr` prints it.
fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}
