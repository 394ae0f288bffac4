//! HTB's words, their defaults, and the values that it refuses.

use crate::schedule::{Context, Entry, Rank, Role, TcForm};
use crate::settings::{Kind, Settings, Word};
use crate::shape::token_bucket::TokenBucket;
use crate::spec::{SpecError, Timer};
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[Word {
        name: "r2q",
        kind: Kind::Int { min: 1, max: u32::MAX as u64 },
        help: "a class's quantum is its rate in bytes a second over this",
        default: "10",
    }],
    class_words: &[
        Word {
            name: "rate",
            kind: Kind::Rate,
            help: "what it has whatever others do (share N% sets it too)",
            default: "0bit/s",
        },
        Word { name: "ceil", kind: Kind::Rate, help: "most that it may have with borrowing", default: "the rate" },
        Word {
            name: "burst",
            kind: Kind::Bytes { min: 1, max: u32::MAX as u64 },
            help: "tokens that its rate saves up, bytes",
            default: "1600 or a packet, and what passes in a tick",
        },
        Word {
            name: "cburst",
            kind: Kind::Bytes { min: 1, max: u32::MAX as u64 },
            help: "tokens that its ceil saves up, bytes",
            default: "1600 or a packet, and what passes in a tick",
        },
        Word {
            name: "prio",
            kind: Kind::Int { min: 0, max: 7 },
            help: "who goes first, within the rate and in borrowing, 0 first",
            default: "0",
        },
        Word {
            name: "quantum",
            kind: Kind::Bytes { min: 1, max: i32::MAX as u64 },
            help: "bytes a turn: the share of what is borrowed",
            default: "the rate over r2q, 1000 to 200000",
        },
        Word {
            name: "overhead",
            kind: Kind::Bytes { min: 0, max: u16::MAX as u64 },
            help: "bytes that its tokens are charged beyond a packet's length",
            default: "0",
        },
        Word {
            name: "mpu",
            kind: Kind::Bytes { min: 0, max: u16::MAX as u64 },
            help: "bytes that its tokens are charged at least",
            default: "0",
        },
    ],
    roles: &[
        ("rate", Role::Guarantee),
        ("ceil", Role::CeilingOrGuarantee),
        ("prio", Role::Priority),
        ("quantum", Role::Weight),
    ],
    foreign: &[
        ("bandwidth", "rate 5Mbit/s"),
        ("ceiling", "ceil"),
        ("borrow", "ceil 10Mbit/s"),
        ("priority", "prio"),
        ("maxburst", "burst 6000bytes"),
        ("limit", "queue drop_tail { limit 50packets }"),
    ],
    guarantee: |class| Some(class.rate("rate").unwrap_or_default()),
    promises: super::promise::promises,
    bounds: Some(super::promise::bounds),
    check: super::check::check,
    notes: super::advice::notes,
    // Within the rate leaves of a lower prio go first too, but their buckets bound that.
    rank: |_, class| Some(Rank::Beyond(class.int("prio").unwrap_or(0))),
    tc: TcForm::Tokens,
    ..Entry::new(
        "htb",
        "hierarchical token bucket: a rate, borrowing up to a ceil, the kernel's order",
        |context, settings| Ok(Box::new(super::Htb::new(context, r2q(settings)))),
    )
};

/// The kernel's bounds for a quantum that it works out from r2q, bytes. Its log says when one of
/// them applies.
pub const QUANTUM: std::ops::RangeInclusive<u32> = 1_000..=200_000;

/// The length that tc reckons with when it works out a burst, bytes.
const TC_MTU: u64 = 1600;

/// A class's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Bit/s.
    pub rate: u64,
    /// Bit/s, not below the rate.
    pub ceil: u64,
    /// Bytes.
    pub burst: u64,
    /// Bytes.
    pub cburst: u64,
    /// 0 to 7, 0 first.
    pub prio: u8,
    /// Bytes; `None`: the rate over r2q.
    pub quantum: Option<u32>,
    /// Bytes.
    pub overhead: u16,
    /// Bytes.
    pub mpu: u16,
}

/// What the defaults of bursts are worked out from.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// The largest packet as it is charged, bytes.
    pub packet: u64,
    /// Time between two ticks of the caller's timers, ns; 1 if they are exact.
    pub tick: Nanos,
}

impl Defaults {
    /// Of a scheduler's context.
    pub fn of(context: &Context) -> Defaults {
        let tick = match context.timer {
            Timer::Exact => 1,
            Timer::Tick(tick) => tick,
        };
        Defaults { packet: u64::from(context.overhead.charge(context.mtu)), tick }
    }

    /// The default burst of a rate, bytes: what the rate brings in a tick, and 1600 bytes or the
    /// largest packet, whichever is more. tc takes 1600 bytes in any case; its tick is a nanosecond
    /// where the kernel has fine timers.
    pub fn burst(&self, rate: Rate) -> u64 {
        rate.bytes_in(self.tick).saturating_add(self.packet.max(TC_MTU))
    }

    /// The burst of the link, which HTB treats as a class, bytes: at least twice the bucket of
    /// `regulator altq`. After an idle time such a regulator lets pass what was left in the bucket
    /// and a full one; the link's burst does not hold that back.
    pub fn link_burst(&self, rate: Rate) -> u64 {
        let packet = u32::try_from(self.packet).unwrap_or(u32::MAX);
        self.burst(rate).max(2 * u64::from(TokenBucket::auto_depth(rate, packet)))
    }
}

impl Words {
    /// Reads a class's words.
    pub fn read(settings: &Settings, defaults: &Defaults) -> Result<Words, SpecError> {
        let rate = settings.rate("rate").unwrap_or_default();
        let ceil = settings.rate("ceil").unwrap_or(rate);
        if ceil < rate {
            return Err(SpecError::word("ceil", format!("the ceil {ceil} is below the rate {rate}"))
                .help("raise the ceil, or lower the rate"));
        }
        let short = |word| settings.bytes(word).unwrap_or(0).min(u64::from(u16::MAX)) as u16;
        Ok(Words {
            rate: rate.as_bit_s(),
            ceil: ceil.as_bit_s(),
            burst: settings.bytes("burst").unwrap_or_else(|| defaults.burst(rate)),
            cburst: settings.bytes("cburst").unwrap_or_else(|| defaults.burst(ceil)),
            prio: settings.int("prio").unwrap_or(0).min(7) as u8,
            quantum: settings.bytes("quantum").map(|bytes| bytes.clamp(1, i32::MAX as u64) as u32),
            overhead: short("overhead"),
            mpu: short("mpu"),
        })
    }

    /// Bytes a turn.
    pub fn quantum(&self, r2q: u64) -> u32 {
        self.quantum.unwrap_or_else(|| bounded(self.rate, r2q))
    }
}

/// Reads the scheduler's own word.
pub fn r2q(settings: &Settings) -> u64 {
    settings.int("r2q").unwrap_or(10).max(1)
}

/// The quantum that r2q gives a rate in bit/s, before the kernel's bounds.
pub fn unbounded(rate: u64, r2q: u64) -> u64 {
    rate / 8 / r2q.max(1)
}

fn bounded(rate: u64, r2q: u64) -> u32 {
    unbounded(rate, r2q).clamp(u64::from(*QUANTUM.start()), u64::from(*QUANTUM.end())) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Value;

    /// What `tc -d class show` printed (kernel 6.18, iproute2 6.1) for classes of these rates with
    /// r2q 10.
    #[test]
    fn quanta_of_the_kernel() {
        let kernel = [
            (32_000, 1_000),
            (400_000, 5_000),
            (1_000_000, 12_500),
            (1_600_000, 20_000),
            (2_000_000, 25_000),
            (20_000_000, 200_000),
            (160_000_000, 200_000),
            (20_000_000_000, 200_000),
        ];
        for (rate, quantum) in kernel {
            assert_eq!(Words { rate, ..Words::default() }.quantum(10), quantum, "{rate}");
        }
    }

    /// tc printed 1600b for 32 kbit/s to 200 Mbit/s. At 10 ms a tick, 20 Mbit/s bring 25000 bytes
    /// more.
    #[test]
    fn bursts_of_tc() {
        let exact = Defaults { packet: 1500, tick: 1 };
        for rate in [32_000, 400_000, 2_000_000, 200_000_000] {
            assert_eq!(exact.burst(Rate::bit_s(rate)), 1600, "{rate}");
        }
        assert_eq!(Defaults { tick: 10_000_000, ..exact }.burst(Rate::mbit_s(20)), 26_600);
        assert_eq!(Defaults { packet: 9038, ..exact }.burst(Rate::mbit_s(20)), 9038);
    }

    #[test]
    fn a_ceil_is_not_below_the_rate() {
        let settings =
            Settings::new().with("rate", Value::Rate(Rate::mbit_s(2))).with("ceil", Value::Rate(Rate::mbit_s(1)));
        let error = Words::read(&settings, &Defaults { packet: 1500, tick: 1 }).unwrap_err();
        assert_eq!((error.word, error.message.as_str()), (Some("ceil"), "the ceil 1Mbit/s is below the rate 2Mbit/s"));
    }
}
