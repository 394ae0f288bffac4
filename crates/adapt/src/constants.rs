//! The times and parts that the rules use, each with its reason.

use altq_engine::units::{Nanos, SECOND};

const MILLI: Nanos = 1_000_000;

/// Time between two probes of the same reflector. cake-autorate probes each of its six reflectors
/// every 300 ms; users of it report that about 20 probes a second in all serve LTE well
/// (cake-autorate 3.2, defaults.sh). With four probes a second three reflectors give 12 answers.
/// The reflectors of a link are probed in turn, evenly spread.
pub const PROBE_EVERY: Nanos = 250 * MILLI;

/// Length of a probe at layer 3: IPv4 header 20, ICMP header 8 (RFC 792), 56 bytes of data, as
/// ping(8) sends.
pub const PROBE_BYTES: u32 = 84;

/// A probe without an answer for this long is lost (cake-autorate: `reflector_response_deadline_s`,
/// 1 s).
pub const DEADLINE: Nanos = SECOND;

/// How often a controller should be asked: several times within [`LEAST_GAP`].
pub const TICK: Nanos = 50 * MILLI;

/// Least time between two changes of the rate. A sample shows a change's effect after a round trip
/// and the time to the next probe at the earliest.
pub const LEAST_GAP: Nanos = 250 * MILLI;

/// Least time between two cuts while answers are late: two probes of a reflector take so long, and
/// its vote needs two (cake-autorate: `bufferbloat_refractory_period_ms`, 300 ms).
pub const CUT_EVERY: Nanos = 300 * MILLI;

/// How often an unused link moves towards its base rate (cake-autorate:
/// `decay_refractory_period_ms`, 1 s).
pub(crate) const REST_EVERY: Nanos = SECOND;

/// After this long without any answer a link that is used is slowed down, as if answers were late
/// by that time. It is also how long an answer counts.
pub(crate) const SILENT: Nanos = DEADLINE;

/// The rate rises only if there was an answer within this time: two probes of the same reflector.
pub(crate) const RECENT: Nanos = 2 * PROBE_EVERY;

/// Two answers in a row that are further apart than this do not confirm each other.
pub(crate) const PAIR: Nanos = 3 * SECOND;

/// After this long without any answer the controller goes by no answers any more: probes may be
/// filtered (cake-autorate: `global_ping_response_timeout_s`, 10 s). A controller that was not
/// asked for this long, because its process was stopped, begins anew.
pub(crate) const BLIND: Nanos = 10 * SECOND;

/// A reflector is dead after this many lost probes in a row (cake-autorate: three offences), and
/// this long after its last answer.
pub(crate) const DEAD_AFTER: u32 = 3;
pub(crate) const DEAD_FOR: Nanos = 3 * SECOND;

/// How often it is judged which reflectors disagree with the others.
pub(crate) const JUDGE_EVERY: Nanos = PROBE_EVERY;

/// A reflector that disagreed in this many judgements more than it agreed is dropped: 5 s of them.
pub(crate) const STRIKES: u32 = 20;

/// Most such judgements that are remembered. A dropped reflector counts again when they are used
/// up: after 60 s of agreement at most.
pub(crate) const MOST_STRIKES: u32 = 240;

/// The usual delay of a reflector rises by this part of what an answer takes longer. At four
/// answers a second it follows with a time constant of 64 s: a clock that drifts by 100 parts in a
/// million (0.1 ms a second, more than the 15 parts of RFC 5905) is followed 6.4 ms behind.
/// cake-autorate's 0.001 at 3.3 answers a second is 300 s.
pub(crate) const RISE: i64 = 256;

/// What an answer takes longer than this does not raise the usual delay further: 1 ms a second at
/// most. Otherwise two seconds of queue would raise it by more than the target before they are
/// gone.
pub(crate) const MOST_RISE: i64 = 64 * MILLI as i64;

/// The same while the link is quiet: what it sends then delays nobody, so what an answer takes is
/// the usual delay. A route that became 100 ms longer is accepted within 4 s.
pub(crate) const RISE_QUIET: i64 = 8;

/// The same at the lowest rate: the line may carry less than that, and then the delay is the
/// queue's, however long it lasts. The time constant is 512 s, like the ten minutes of RFC 6817
/// 3.4.2 (`BASE_HISTORY`): a route that became 100 ms longer is accepted after 11 minutes without a
/// pause in sending.
pub(crate) const RISE_LOWEST: i64 = 2048;

/// A delay that is higher by more than this was measured with a clock that has been set. ICMP's
/// timestamps begin anew at midnight (RFC 792).
pub(crate) const CLOCK_SET: i64 = 600 * SECOND as i64;

/// The rate at which answers became late is remembered for this long. Beyond that, the line may
/// well have become faster.
pub(crate) const KNEE_FOR: Nanos = 30 * SECOND;
