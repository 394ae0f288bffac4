//! One run of the generators: readings at given moments, and reasons to distrust them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use altq_cases::task::Progress;
use altq_engine::spec::Timer;
use altq_traffic::clock::{self, Lateness, Processors};
use altq_traffic::meter::{Meter, Reading};
use altq_traffic::run::Epoch;
use anyhow::bail;

use super::generator::{self, Flow, Kind};
use super::topology::Topology;

/// The readings of all meters at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When the readings were due, from the start of the run.
    pub due: Duration,
    /// When they were taken, from the start of the run.
    pub at: Duration,
    /// Reading of each flow's meter.
    pub flows: Vec<Reading>,
}

/// The readings of a whole run.
pub struct Run {
    /// When the run started.
    pub epoch: Instant,
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// The flows' meters after the run.
    pub meters: Vec<Arc<Meter>>,
    /// Why the figures cannot be trusted; empty if they can.
    pub invalid: Vec<String>,
    /// True if other machines took more of the processors than they may, or if the host's timers
    /// were late. This says nothing about the case.
    pub disturbed: bool,
    /// Share of the processors' time that was in use, 0 to 1.
    pub busy: f64,
    /// When no processor was idle, from the start of the run.
    pub full: Full,
}

/// The times in which the processors were busy for at least [`BUSY`] of the time, in steps of
/// [`STEP`] or a little more.
#[derive(Clone, Debug, Default)]
pub struct Full {
    /// From when to when, in order of time.
    pub spans: Vec<(Duration, Duration)>,
    /// The last look.
    pub(super) last: Option<(Duration, Processors)>,
}

impl Full {
    /// True if it is time to look at the processors.
    fn is_due(&self, now: Duration) -> bool {
        self.last.is_none_or(|(at, _)| now.saturating_sub(at) >= STEP)
    }

    /// Takes a look at the processors.
    fn look(&mut self, now: Duration, processors: Processors) {
        if let Some((from, before)) = self.last.replace((now, processors))
            && processors.since(&before).0 >= BUSY
        {
            match self.spans.last_mut() {
                Some((_, to)) if *to == from => *to = now,
                _ => self.spans.push((from, now)),
            }
        }
    }
}

impl Run {
    /// The sample that was due at a moment.
    pub fn at(&self, due: Duration) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.due == due)
    }
}

/// Time between the start of the threads and the start of the run.
const LEAD: Duration = Duration::from_millis(50);

/// Time between two looks at the processors. /proc/stat counts in steps of 10 ms.
const STEP: Duration = Duration::from_millis(500);

/// If the processors were busy for at least this share of the time, the host may have limited a
/// flow.
const BUSY: f64 = 0.97;

/// Share of the processors' time that the hypervisor may take from this machine.
const STOLEN: f64 = 0.05;

/// Something to do at a time of the run.
pub struct TimedAction<'a> {
    /// When, from the start of the run.
    pub at: Duration,
    /// What to do.
    pub act: Box<dyn Fn() -> anyhow::Result<()> + 'a>,
}

/// Runs the flows until the last of `moments`, and reads the meters at each of them. `clock` has
/// the end of the warm-up, from which on gaps between datagrams are measured, and the timer: the
/// run begins at a tick of that timer by the kernel's clock. `check` is called ten times a second,
/// and fails if the bridge has failed. `moments` and `actions` are in order of time. `progress` is
/// told the nanoseconds that have passed.
///
/// # Errors
/// If a generator, an action or the check fails. All threads have ended then.
pub fn run(
    topology: &Topology,
    flows: &[Flow],
    moments: &[Duration],
    clock: (Duration, Timer),
    check: &dyn Fn() -> anyhow::Result<()>,
    actions: &[TimedAction<'_>],
    progress: Option<&Progress>,
) -> anyhow::Result<Run> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let beat = thread::Builder::new().name("metronome".into()).spawn_scoped(scope, || clock::metronome(&stop))?;
        let processors = Processors::now()?;
        let result = drive(topology, flows, moments, clock, check, actions, progress);
        stop.store(true, Ordering::Relaxed);
        let beat = beat.join().unwrap_or_default();
        let mut run = result?;
        let stolen;
        (run.busy, stolen) = Processors::now()?.since(&processors);
        run.invalid = distrust(flows, &run.meters, &beat, run.busy, stolen);
        run.disturbed = stolen > STOLEN || beat.broken().is_some();
        Ok(run)
    })
}

fn drive(
    topology: &Topology,
    flows: &[Flow],
    moments: &[Duration],
    (warmup, timer): (Duration, Timer),
    check: &dyn Fn() -> anyhow::Result<()>,
    actions: &[TimedAction<'_>],
    progress: Option<&Progress>,
) -> anyhow::Result<Run> {
    let mut actions = actions.iter().peekable();
    let end = moments.last().copied().unwrap_or_default();
    let run = Epoch::on_tick(LEAD, timer);
    let running = generator::start(topology, flows, run, (warmup, end))?;
    let epoch = run.start();
    let mut told = Duration::ZERO;
    let mut tell = |now: Duration| {
        let news = now.saturating_sub(told);
        told += news;
        progress.into_iter().for_each(|progress| progress.add(news.as_nanos() as u64));
    };
    let (mut samples, mut full) = (Vec::with_capacity(moments.len()), Full::default());
    for due in moments {
        while Instant::now() < epoch + *due {
            let happens = actions.peek().map(|next| epoch + next.at);
            let until = (epoch + *due).min(Instant::now() + Duration::from_millis(100));
            clock::sleep_until(happens.map_or(until, |at| until.min(at)));
            while let Some(next) = actions.next_if(|next| epoch + next.at <= Instant::now()) {
                (next.act)()?;
            }
            let now = epoch.elapsed();
            tell(now.min(end));
            if full.is_due(now) {
                full.look(now, Processors::now()?);
            }
            check()?;
            if running.failed() {
                running.finish()?;
                bail!("a generator ended before the run was over");
            }
        }
        let at = epoch.elapsed();
        samples.push(Sample { due: *due, at, flows: running.meters().iter().map(|meter| meter.read()).collect() });
    }
    tell(end);
    Ok(Run { epoch, samples, meters: running.finish()?, invalid: Vec::new(), disturbed: false, busy: 0.0, full })
}

/// Reasons why the figures of a run cannot be trusted; empty if they can.
fn distrust(flows: &[Flow], meters: &[Arc<Meter>], beat: &Lateness, busy: f64, stolen: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(reason) = beat.broken() {
        reasons.push(format!("the host did not keep time: {reason}; its processors were {:.0} % busy", busy * 100.0));
    }
    if stolen > STOLEN {
        reasons.push(format!("{:.0} % of the processors' time was taken by other machines", stolen * 100.0));
    }
    for (flow, meter) in flows.iter().zip(meters) {
        if matches!(flow.kind, Kind::Datagrams(_))
            && let Some(reason) = meter.lateness().broken()
        {
            reasons.push(format!("the source of flow `{}` was behind its schedule: {reason}", flow.name));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors for four seconds: idle, full for a second and a half, half idle, full again.
    #[test]
    fn when_no_processor_was_idle_is_known() {
        let (mut full, mut busy, mut idle) = (Full::default(), 0, 0);
        for (step, used) in [0, 0, 100, 98, 100, 50, 96, 100].into_iter().enumerate() {
            let now = STEP * step as u32;
            assert!(full.is_due(now) && (step == 0 || !full.is_due(now - STEP / 2)));
            (busy, idle) = (busy + used, idle + 100 - used);
            full.look(now, Processors::of(&format!("cpu {busy} 0 0 {idle} 0 0 0 0 0 0\n")).unwrap());
        }
        assert_eq!(full.spans, [(STEP, STEP * 4), (STEP * 6, STEP * 7)]);
    }
}
