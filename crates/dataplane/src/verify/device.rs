//! The interfaces of a link: whether they are there and carry packets, how they are set, and the
//! rate of the line behind them.

use altq_config::Link;
use altq_engine::units::Rate;

use super::{Looked, Settings};
use crate::sys::interface::{Interface, State};

/// What is found where an interface is gone.
pub const NONE: &str = "there is none";

/// How an interface is set; `None` where there is none.
pub fn settings(name: &str) -> Option<Settings> {
    Interface::find(name).ok().map(|interface| read(&interface))
}

fn read(interface: &Interface) -> Settings {
    let told = |(word, on): (&'static str, Option<bool>)| on.map(|on| (word.to_owned(), on));
    let offloads = interface.offloads().into_iter().filter_map(told).collect();
    Settings { name: interface.name.clone(), queue_length: interface.queue_length().ok(), offloads }
}

/// Looks at an interface. `before` is how it was set when the link began.
pub fn look(name: &str, link: &Link, before: Option<&Settings>, looked: &mut Looked) {
    let Ok(interface) = Interface::find(name) else {
        let said = [format!("an interface {name}"), NONE.to_owned()];
        return looked.differs("device", name, said, "`ip link show` lists the interfaces that there are");
    };
    let state = match interface.state() {
        State::Up => None,
        State::Down => Some(("it is down", format!("ip link set dev {name} up"))),
        State::NoCarrier => Some(("no carrier", "plug the cable in, or set the other end up".to_owned())),
        State::Gone => Some((NONE, "`ip link show` lists the interfaces that there are".to_owned())),
    };
    if let Some((found, remedy)) = state {
        looked.differs("device", name, ["up, with a carrier".to_owned(), found.to_owned()], remedy);
    }
    if let Some(before) = before {
        compare(before, &read(&interface), looked);
    }
    // Below the rate of the link the line is the bottleneck: packets wait in the device, where
    // nobody shapes them.
    let rate = link.spec.rate;
    if let Some(line) = interface.speed().map(Rate::bit_s).filter(|line| *line < rate) {
        let said = [format!("a line of at least {rate}, the rate of the link"), format!("a line of {line}")];
        looked.differs("rate", name, said, format!("altq link set {} rate {line}", link.name));
    }
}

/// Compares how an interface is set with how it was.
pub fn compare(before: &Settings, now: &Settings, looked: &mut Looked) {
    let name = &before.name;
    if let (Some(was), Some(is)) = (before.queue_length, now.queue_length)
        && was != is
    {
        let said = [format!("txqueuelen {was}"), format!("txqueuelen {is}")];
        looked.differs("device", name, said, format!("ip link set dev {name} txqueuelen {was}"));
    }
    for (word, was) in &before.offloads {
        let is = now.offloads.iter().find(|(other, _)| other == word).map(|(_, is)| *is);
        let shown = |on: bool| if on { "on" } else { "off" };
        if let Some(is) = is
            && is != *was
        {
            let said = [format!("{word} {}", shown(*was)), format!("{word} {}", shown(is))];
            looked.differs("device", name, said, format!("ethtool -K {name} {word} {}", shown(*was)));
        }
    }
}
