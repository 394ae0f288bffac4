//! Measures the CPU time of the benchmark's work.

use rustix::time::{ClockId, clock_gettime};

use super::workload::{self, Load, Work};

/// In which pattern packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Every leaf is backlogged
    Saturated,
    /// One packet in, one packet out, the leaves in random order
    OneAtATime,
}

impl Mode {
    /// The pattern's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Saturated => "saturated",
            Mode::OneAtATime => "one-at-a-time",
        }
    }

    /// Runs `packets` packets through the engine in this pattern.
    pub fn run(self, work: &mut Work, packets: u64) -> anyhow::Result<()> {
        match self {
            Mode::Saturated => work.saturated(packets),
            Mode::OneAtATime => work.one_at_a_time(packets),
        }
    }

    /// Builds the engine, with the packets queued that this pattern begins with.
    pub fn prepare(self, load: &Load<'_>) -> anyhow::Result<Work> {
        let mut work = Work::new(load)?;
        if self == Mode::Saturated {
            work.fill()?;
        }
        Ok(work)
    }
}

/// Nanoseconds per packet in each of several runs, sorted.
#[derive(Clone, Debug)]
pub struct Timing(Vec<f64>);

impl Timing {
    /// The median run.
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The fastest and the slowest run.
    pub fn range(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

/// Measures a mode in `runs` runs (at least 1). `progress` is called with the number of each run
/// before it begins, and with 0 before the warm-up.
pub fn time(work: &mut Work, mode: Mode, classes: u32, runs: u32, progress: impl Fn(u32)) -> anyhow::Result<Timing> {
    // Enough packets that every leaf is visited several times, and that the resolution of the clock
    // does not matter.
    let packets = u64::from(classes * 8).max(400_000);
    progress(0);
    mode.run(work, packets)?;
    let mut times = Vec::new();
    for run in 1..=runs.max(1) {
        progress(run);
        let start = thread_cpu_ns();
        mode.run(work, packets)?;
        times.push((thread_cpu_ns() - start) as f64 / packets as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(Timing(times))
}

/// Bytes of memory that each further class (or flow) takes: the difference between 100,000 and
/// 1,000 of them, divided by 99,000.
pub fn bytes_per_class(load: &Load<'_>) -> anyhow::Result<f64> {
    let (few, many) = (1_000, 100_000);
    let memory = |classes| workload::memory(&Load { classes, ..*load });
    Ok((memory(many)? as f64 - memory(few)? as f64) / f64::from(many - few))
}

/// CPU time of this thread, so that other processes do not count.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
