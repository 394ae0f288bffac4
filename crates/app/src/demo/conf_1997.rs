//! The demo's second part: a `cbq.conf` printed in 1997, run with the estimator of 1997 and with
//! that of today.

use altq_config::{Language, Link, parse_str};
use altq_engine::settings::{Limit, Value};
use altq_engine::spec::QueueSpec;
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_simulator::replay::{self, Arrivals, Options};
use anyhow::Context;

/// The file: 100baseT in "Performance Measurements of ALTQ/CBQ", K. Cho, 15 August 1997.
pub const CONF: &str = include_str!("1997.conf");

/// The class that was measured: 10 % of 100 Mbit/s.
const CLASS: &str = "tcp_class";

/// The rate that the file gives it.
pub const ASKED: Rate = Rate::mbit_s(10);

/// TCP payload measured then, in bit/s, with timers of 100 and of 1000 Hz.
pub const PUBLISHED: [u64; 2] = [7_940_000, 9_160_000];

/// The rates that the class gets, in bit/s.
pub struct Conf1997 {
    /// Rates with `estimator classic` and timers of 100 Hz and of 1000 Hz.
    pub classic: [u64; 2],
    /// The rate with `estimator exact` and a timer of 100 Hz.
    pub exact: u64,
}

/// Runs the file with both estimators.
pub fn run() -> anyhow::Result<Conf1997> {
    let link =
        parse_str(CONF, "1997.conf", Language::Altq)?.links.into_iter().next().context("the file has an interface")?;
    let mut exact = link.clone();
    exact.spec.scheduler.settings.set("estimator", Value::Choice("exact"));
    Ok(Conf1997 { classic: [rate(&link, 100)?, rate(&link, 1000)?], exact: rate(&exact, 100)? })
}

/// The rate that the class gets in seconds 1 to 11, in bit/s. Its packets arrive in bursts of half
/// a second's worth, so it always has packets. Then only timers and the end of a transmission make
/// the engine run.
fn rate(link: &Link, hz: u64) -> anyhow::Result<u64> {
    let class = link.class(CLASS).context("the file has its class")?;
    let mut link = link.clone();
    // The queue has room for a whole burst.
    let spec = link.spec.classes.get_mut(class as usize).context("the class has its place")?;
    spec.queue = Some(QueueSpec::plain(Limit::Packets(65_000)));
    let fed = ASKED.as_bit_s() * 13_008 / 10_000;
    let burst = fed / 2 / (1500 * 8);
    let every: Nanos = burst * 1500 * 8 * SECOND / fed;
    let mut list = Arrivals::default();
    let mut at = 0;
    while at < 11 * SECOND {
        for id in 0..burst {
            list.push(at, class, 1500, id);
        }
        at += every;
    }
    let timer = altq_cases::limits::tick(hz).map_err(anyhow::Error::msg)?;
    let options = Options { timer, from: SECOND, to: Some(11 * SECOND), ..Options::default() };
    let report = replay::run(&link, &list, &options, &mut ())?;
    report.classes.iter().find(|row| row.name == CLASS).map(|row| row.rate_bit_s).context("the class has its row")
}
