//! Decides which runs of the lab go side by side, and in which order. It has no clock and no
//! threads.

use crate::Need;

/// The limits of what may run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The most runs at a time.
    pub runs: usize,
    /// The most traffic of all runs together, in bit/s.
    pub rate: u64,
}

/// The most runs per processor. A run of 2 Mbit/s needs about 4 % of a processor, mostly to measure
/// how late timers are (every 2 ms) and to take readings.
const RUNS: usize = 8;

/// The most bit/s per processor. 40 Mbit/s of the kernel's TCP in full packets need about 15 % of a
/// processor.
const RATE: u64 = 50_000_000;

impl Bound {
    /// The limits for a host with this many processors; `runs` replaces the number of runs.
    pub fn new(processors: usize, runs: Option<usize>) -> Bound {
        Bound { runs: runs.unwrap_or(processors * RUNS).max(1), rate: RATE.saturating_mul(processors as u64) }
    }
}

/// A run, or several that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// How much of the host it needs.
    pub need: Need,
    /// How long it takes, in ms.
    pub time: u64,
}

/// A job that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    job: usize,
    /// True if no other job may run beside it.
    alone: bool,
    /// Its traffic, in bit/s.
    rate: u64,
    /// The highest number of jobs that ran beside it at a time.
    beside: usize,
}

/// Jobs that wait and jobs that run. A job's number is its index in `jobs`.
#[derive(Clone, Debug)]
pub struct Plan {
    bound: Bound,
    jobs: Vec<Job>,
    /// Waiting jobs in order of preference; those that must run alone come last, in order of their
    /// numbers.
    waiting: Vec<usize>,
    running: Vec<Running>,
}

impl Plan {
    /// A plan for these jobs. Two orders are compared, longest job first and heaviest load first,
    /// and the one that ends sooner is taken. If only one job at a time is allowed, jobs keep their
    /// order.
    pub fn new(jobs: Vec<Job>, bound: Bound) -> Plan {
        let plan = Plan { bound, waiting: (0..jobs.len()).collect(), jobs, running: Vec::new() };
        if bound.runs == 1 {
            return plan;
        }
        let longest = |job: &Job| job.time as f64;
        let largest = |job: &Job| {
            let part = match job.need {
                Need::Shared(rate) => (rate as f64 / bound.rate as f64).max(1.0 / bound.runs as f64),
                Need::Alone => 1.0,
            };
            job.time as f64 * part
        };
        let [one, other] = [plan.sorted(longest), plan.sorted(largest)];
        if other.left(|_| 0) < one.left(|_| 0) { other } else { one }
    }

    fn sorted(&self, weight: impl Fn(&Job) -> f64) -> Plan {
        let mut plan = self.clone();
        // For floats that are not negative, the order of bit patterns is the order of values. Jobs
        // that run alone take as long in any order; in this one a caller whose jobs belong
        // together by number has some of them whole early.
        let order = |at: &usize| {
            let job = self.jobs.get(*at)?;
            let alone = self.rate(job).is_none();
            Some((alone, if alone { *at as u64 } else { u64::MAX - weight(job).to_bits() }))
        };
        plan.waiting.sort_by_key(order);
        plan
    }

    /// The traffic of a job beside which others may run; `None` if it must run alone.
    fn rate(&self, job: &Job) -> Option<u64> {
        match job.need {
            Need::Shared(rate) if self.bound.runs > 1 && rate <= self.bound.rate => Some(rate),
            _ => None,
        }
    }

    /// Starts the next job that fits now and returns it; `None` if none does.
    pub fn next(&mut self) -> Option<usize> {
        let free = self.bound.rate.saturating_sub(self.running.iter().map(|own| own.rate).sum());
        let room = self.running.len() < self.bound.runs && !self.running.iter().any(|own| own.alone);
        let fits = |at: &usize| match self.jobs.get(*at).and_then(|job| self.rate(job)) {
            Some(rate) => room && rate <= free,
            None => self.running.is_empty(),
        };
        let place = self.waiting.iter().position(fits)?;
        let job = self.waiting.remove(place);
        let rate = self.jobs.get(job).and_then(|job| self.rate(job));
        self.running.push(Running { job, alone: rate.is_none(), rate: rate.unwrap_or(0), beside: 0 });
        let beside = self.running.len() - 1;
        self.running.iter_mut().for_each(|own| own.beside = own.beside.max(beside));
        Some(job)
    }

    /// Notes that a job is over. Returns the highest number of jobs that ran beside it at a time.
    pub fn ended(&mut self, job: usize) -> usize {
        let place = self.running.iter().position(|own| own.job == job);
        place.map_or(0, |place| self.running.remove(place).beside)
    }

    /// Queues a job once more, to run alone: among those that do so, by its number.
    pub fn again(&mut self, job: usize) {
        if let Some(job) = self.jobs.get_mut(job) {
            job.need = Need::Alone;
        }
        let later =
            |other: &usize| self.jobs.get(*other).is_some_and(|waiting| self.rate(waiting).is_none()) && *other > job;
        let place = self.waiting.iter().position(later).unwrap_or(self.waiting.len());
        self.waiting.insert(place, job);
    }

    /// Removes waiting jobs for which `unwanted` is true. Running jobs go on.
    pub fn forget(&mut self, unwanted: impl Fn(usize) -> bool) {
        self.waiting.retain(|job| !unwanted(*job));
    }

    /// True if nothing runs or waits.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Estimate of the time until all jobs are over, in ms. `ran` returns for how many ms a job has
    /// been running.
    pub fn left(&self, ran: impl Fn(usize) -> u64) -> u64 {
        let mut plan = self.clone();
        let time = |job: usize| self.jobs.get(job).map_or(0, |job| job.time);
        let mut ends: Vec<(u64, usize)> =
            plan.running.iter().map(|own| (time(own.job).saturating_sub(ran(own.job)), own.job)).collect();
        let mut now = 0;
        loop {
            while let Some(job) = plan.next() {
                ends.push((now + time(job), job));
            }
            let Some(first) = (0..ends.len()).min_by_key(|at| ends.get(*at)) else { return now };
            let (end, job) = ends.swap_remove(first);
            now = end;
            plan.ended(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { runs: 4, rate: 100 };

    fn shared(rate: u64, time: u64) -> Job {
        Job { need: Need::Shared(rate), time }
    }

    fn alone(time: u64) -> Job {
        Job { need: Need::Alone, time }
    }

    fn begin(plan: &mut Plan) -> Vec<usize> {
        std::iter::from_fn(|| plan.next()).collect()
    }

    #[test]
    fn the_host_bears_so_much_at_once() {
        let mut plan = Plan::new(vec![shared(60, 50), shared(60, 40), shared(40, 30), shared(1, 20)], BOUND);
        // The second does not fit beside the first; the third does, and fills the limit.
        assert_eq!(begin(&mut plan), [0, 2]);
        assert_eq!(plan.ended(2), 1);
        assert_eq!(begin(&mut plan), [3]);
        assert_eq!(plan.ended(0), 1);
        assert_eq!(begin(&mut plan), [1]);
        assert_eq!((plan.ended(3), plan.ended(1)), (1, 1));
        assert!(plan.is_over());
        // Never more than four jobs, however little traffic they have.
        let mut plan = Plan::new(vec![shared(0, 1); 9], BOUND);
        assert_eq!(begin(&mut plan), [0, 1, 2, 3]);
        assert_eq!(plan.ended(1), 3);
        assert_eq!(begin(&mut plan), [4]);
    }

    #[test]
    fn what_needs_the_host_has_it() {
        // A job with more traffic than the limit runs alone.
        let mut plan = Plan::new(vec![alone(90), shared(1, 10), shared(101, 50), shared(1, 20)], BOUND);
        assert_eq!(begin(&mut plan), [3, 1]);
        plan.ended(3);
        assert!(begin(&mut plan).is_empty());
        plan.ended(1);
        assert_eq!(begin(&mut plan), [0]);
        assert_eq!(plan.ended(0), 0);
        assert_eq!(begin(&mut plan), [2]);
        assert_eq!(plan.ended(2), 0);
        assert!(plan.is_over());
    }

    #[test]
    fn again_is_alone_and_in_its_place() {
        let mut plan = Plan::new(vec![shared(1, 30), shared(1, 20), alone(10), alone(90)], BOUND);
        assert_eq!(begin(&mut plan), [0, 1]);
        assert_eq!(plan.ended(1), 1);
        plan.again(1);
        assert!(begin(&mut plan).is_empty());
        plan.ended(0);
        // The jobs that run alone go by their numbers, not by their times.
        for job in [1, 2, 3] {
            assert_eq!(begin(&mut plan), [job]);
            assert_eq!(plan.ended(job), 0);
        }
        assert!(plan.is_over());
    }

    #[test]
    fn one_after_another_in_their_order() {
        let mut plan = Plan::new(vec![shared(1, 1), alone(2), shared(1, 3)], Bound { runs: 1, ..BOUND });
        assert_eq!(plan.left(|_| 0), 6);
        for job in 0..3 {
            assert_eq!(begin(&mut plan), [job]);
            assert_eq!(plan.ended(job), 0);
        }
    }

    #[test]
    fn the_time_that_is_left() {
        let mut plan = Plan::new(vec![shared(60, 50), shared(60, 40), shared(40, 30), alone(7)], BOUND);
        assert_eq!(plan.left(|_| 0), 50 + 40 + 7);
        assert_eq!(begin(&mut plan), [0, 2]);
        // After 30 ms the third job is over.
        plan.ended(2);
        assert_eq!(plan.left(|_| 30), 20 + 40 + 7);
        plan.forget(|job| job == 1);
        assert_eq!(plan.left(|_| 30), 20 + 7);
        // A job that takes longer than planned has 0 ms left.
        assert_eq!(plan.left(|_| 60), 7);
        assert_eq!(Plan::new(Vec::new(), BOUND).left(|_| 0), 0);
    }

    #[test]
    fn the_better_of_two_orders() {
        // With the longest first, the two that cannot go together come last: 10 + 9 + 9 ms. With
        // these two first, the others fit beside them.
        let jobs = vec![shared(50, 10), shared(50, 10), shared(60, 9), shared(60, 9), shared(40, 9)];
        let plan = Plan::new(jobs.clone(), BOUND);
        assert_eq!(plan.sorted(|job| job.time as f64).left(|_| 0), 28);
        assert!(plan.left(|_| 0) <= 28);
        // With the heaviest first, everything waits for the one long job at the end.
        let jobs = [vec![shared(1, 100)], vec![shared(100, 30); 3]].concat();
        assert_eq!(Plan::new(jobs, BOUND).left(|_| 0), 190);
        let jobs = [vec![shared(1, 100)], vec![shared(99, 30); 3]].concat();
        assert_eq!(Plan::new(jobs, BOUND).left(|_| 0), 100);
    }

    #[test]
    fn a_host_with_more_processors_bears_more() {
        assert_eq!(Bound::new(2, None), Bound { runs: 16, rate: 100_000_000 });
        assert_eq!(Bound::new(4, None), Bound { runs: 32, rate: 200_000_000 });
        assert_eq!(Bound::new(2, Some(1)), Bound { runs: 1, rate: 100_000_000 });
    }
}
