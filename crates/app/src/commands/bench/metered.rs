//! A meter in every leaf class: what metering costs a packet.

use altq_engine::settings::{Settings, Value};
use altq_engine::units::Rate;

use super::workload::PACKET;

/// The meter of every leaf class. Of packets that come at the class's equal part of the link it
/// makes half green and the rest yellow or red; `tswtcm` does so after its first 0.35 s. It gives
/// each colour a DSCP, and drops none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Meter {
    /// A token bucket
    Bucket,
    /// The single rate three color marker (RFC 2697)
    Srtcm,
    /// The two rate three color marker (RFC 2698)
    Trtcm,
    /// The time sliding window three color marker (RFC 2859)
    Tswtcm,
    /// `trtcm` with a token bucket for its red packets, as in a conditioner of ALTQ
    Chain,
}

/// The codepoints of green, yellow and red packets: AF11, AF12 and AF13 (RFC 2597 6).
const MARKS: [u64; 3] = [10, 12, 14];
/// Bytes of each bucket.
const BURST: u64 = 64 * PACKET as u64;

impl Meter {
    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Meter::Bucket => "bucket",
            Meter::Srtcm => "srtcm",
            Meter::Trtcm => "trtcm",
            Meter::Tswtcm => "tswtcm",
            Meter::Chain => "chain",
        }
    }

    /// Gives it to a leaf class, whose part of the link is `part`.
    pub fn give(self, class: &mut Settings, part: Rate) {
        let of = |parts: u64| Value::Rate(Rate::bit_s((part.as_bit_s() / 8 * parts).max(1)));
        let kind = if self == Meter::Chain { Meter::Trtcm } else { self };
        class.set("meter", Value::Choice(kind.name())).set("meter cir", of(4));
        if kind != Meter::Tswtcm {
            class.set("meter cbs", Value::Bytes(BURST));
        }
        match kind {
            Meter::Srtcm => {
                class.set("meter ebs", Value::Bytes(BURST));
            }
            Meter::Trtcm => {
                class.set("meter pir", of(6)).set("meter pbs", Value::Bytes(BURST));
            }
            Meter::Tswtcm => {
                class.set("meter pir", of(6));
            }
            _ => {}
        }
        let [green, yellow, red] = MARKS.map(Value::Int);
        class.set("meter green", green);
        if kind != Meter::Bucket {
            class.set("meter yellow", yellow);
        }
        if self == Meter::Chain {
            class.set("meter red", Value::Choice("meter"));
            class.set("meter red meter", Value::Choice("bucket")).set("meter red meter cir", of(1));
            class.set("meter red meter cbs", Value::Bytes(BURST));
            class.set("meter red meter green", yellow).set("meter red meter red", red);
        } else {
            class.set("meter red", red);
        }
    }
}
