//! The times and fractions that the rate controller uses (docs/adapt.md), each with its reason.

use altq_engine::units::{Nanos, SECOND};

const MILLI: Nanos = 1_000_000;

/// Time between two probes of the same reflector. cake-autorate probes each of its six reflectors
/// every 300 ms; its users report that about 20 probes a second in all serve LTE well
/// (cake-autorate 3.2, defaults.sh). Here three reflectors give 12 answers a second. The reflectors
/// of a link are probed in turn, evenly spread.
pub const PROBE_EVERY: Nanos = 250 * MILLI;

/// Length of a probe at layer 3: IPv4 header 20, ICMP header 8 (RFC 792), 56 bytes of data, as
/// ping(8) sends.
pub const PROBE_BYTES: u32 = 84;

/// A probe without an answer for this long is lost (cake-autorate: `reflector_response_deadline_s`,
/// 1 s).
pub const DEADLINE: Nanos = SECOND;

/// How often [`decide`](crate::Controller::decide) should be called: several times within
/// [`LEAST_GAP`].
pub const TICK: Nanos = 50 * MILLI;

/// The least time between two changes of the rate. Samples show the effect of a change only after
/// the time to the next probe and a round trip.
pub const LEAST_GAP: Nanos = 250 * MILLI;

/// The least time between two cuts while answers are late: longer than one probe interval, so a new
/// answer can come (cake-autorate: `bufferbloat_refractory_period_ms`, 300 ms).
pub const CUT_EVERY: Nanos = 300 * MILLI;

/// How often an unused link moves towards its base rate (cake-autorate:
/// `decay_refractory_period_ms`, 1 s).
pub(crate) const REST_EVERY: Nanos = SECOND;

/// After this long without any answer, a link that is used is cut, as if answers were late by the
/// time of the silence. It is also how long an answer counts.
pub(crate) const SILENT: Nanos = DEADLINE;

/// The rate rises only if there was an answer within this time: two probes of the same reflector.
pub(crate) const RECENT: Nanos = 2 * PROBE_EVERY;

/// Two answers in a row that are further apart than this do not confirm each other.
pub(crate) const PAIR: Nanos = 3 * SECOND;

/// After this long without any answer the rate returns to the base: probes may be filtered
/// (cake-autorate: `global_ping_response_timeout_s`, 10 s). A controller that was not called for
/// this long, because its process was stopped, begins anew.
pub(crate) const BLIND: Nanos = 10 * SECOND;

/// A reflector is dead if this many probes in a row are lost (cake-autorate: three offences), and
/// its last answer is at least `DEAD_FOR` ago.
pub(crate) const DEAD_AFTER: u32 = 3;
pub(crate) const DEAD_FOR: Nanos = 3 * SECOND;

/// Time between two judgements: which reflectors disagree with the others.
pub(crate) const JUDGE_EVERY: Nanos = PROBE_EVERY;

/// A reflector is dropped after this many more disagreements than agreements: 5 s of judgements.
pub(crate) const STRIKES: u32 = 20;

/// The limit of that count. A dropped reflector is taken back when the count is 0 again: after at
/// most 60 s of agreement.
pub(crate) const MOST_STRIKES: u32 = 240;

/// If an answer takes longer than usual, the usual delay rises by the difference divided by this.
/// At four answers a second its time constant is 64 s. If a clock drifts by 100 parts in a million
/// (0.1 ms a second, more than the 15 parts of RFC 5905), the usual delay lags 6.4 ms.
/// cake-autorate's factor of 0.001, at 3.3 answers a second, has a time constant of 300 s.
pub(crate) const RISE: i64 = 256;

/// If an answer takes longer than usual by more than this, the excess does not count. So the usual
/// delay rises by 1 ms a second at most (with [`RISE`]). Otherwise a queue of two seconds would
/// raise it by more than the target before it is gone.
pub(crate) const MOST_RISE: i64 = 64 * MILLI as i64;

/// [`RISE`] while the link is quiet. What the link sends then delays nobody, so the measured delay
/// is the usual one. A route that became 100 ms longer is accepted within 4 s.
pub(crate) const RISE_QUIET: i64 = 8;

/// [`RISE`] at the lowest rate. The line may carry even less; then the delay is the queue's,
/// however long it lasts. The time constant is 512 s, like the ten minutes of RFC 6817 3.4.2
/// (`BASE_HISTORY`). A route that became 100 ms longer is accepted after 11 minutes, if the link
/// sends without a pause.
pub(crate) const RISE_LOWEST: i64 = 2048;

/// If a delay is longer than usual by more than this, a clock has been set. (ICMP's timestamps
/// begin anew at midnight, RFC 792.)
pub(crate) const CLOCK_SET: i64 = 600 * SECOND as i64;

/// The knee (the rate at which answers became late) is remembered for this long. After that, the
/// line may well have become faster.
pub(crate) const KNEE_FOR: Nanos = 30 * SECOND;
