//! Finds what differs between what altq has set up on the host and what the host shows: rules of
//! the firewall, the kernel's queues, the devices. It is for links of every path; qdiscs are
//! compared by [`kernel::drifted`](crate::kernel::drifted).
//!
//! Everything is read from outside, by programs and from tables in /proc. No loop is asked.
//!
//! Rules that another program has taken away, as one that loads a firewall anew does, are set again
//! ([`Drift::mend`]).

mod gone;
mod rules;

use std::collections::BTreeMap;

use altq_config::{Device, Link, Path};

use crate::nfqueue::dscps;
use crate::nfqueue::edge::QUEUES_TABLE;
use crate::nfqueue::steer::{self, Fail, Firewall, Ruleset, Steer};
use crate::sys::interface::Interface;
use crate::sys::table::Table;
use gone::Gone;

/// The end of each sentence which says that packets of a link pass unshaped while its loop runs. By
/// it `altq run` tells such a link from one that only differs.
pub const UNSHAPED: &str = ", so it passes unshaped";

/// Compares later states of the host with the first one.
#[derive(Debug, Default)]
pub struct Drift {
    /// What rules that are set again do while nobody listens.
    fail: Fail,
    /// By interface and direction: what was set up.
    set_up: BTreeMap<(String, bool), SetUp>,
    /// Of these rules, those that are gone, or were.
    gone: BTreeMap<(String, bool), Gone>,
    devices: BTreeMap<String, Known>,
}

/// The rules and the queue of an interface as they were first seen.
#[derive(Debug)]
struct SetUp {
    /// The lines of the rules, as they are listed.
    lines: Vec<String>,
    by: Firewall,
    queue: Option<Queue>,
    /// What the rules do; `None` if no queue was found in them.
    steer: Option<Steer>,
}

/// What the kernel shows about a queue, without counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// The number of the netlink socket that listens.
    pub owner: u64,
    /// How many bytes of each packet are copied.
    pub copied: u64,
}

/// A device as it was seen.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its index, when it was seen last.
    index: u32,
    /// Its settings, when it was seen first.
    settings: Settings,
}

/// Settings of a device that somebody may change while links run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    /// How many packets its own queue can hold (txqueuelen).
    length: Option<u32>,
    /// Whether it merges received packets, and sends and segments super-packets; `None`: unknown.
    offloads: [(&'static str, Option<bool>); 4],
}

impl Drift {
    /// `fail`: what rules that are set again do while nobody listens.
    pub fn new(fail: Fail) -> Drift {
        Drift { fail, ..Drift::default() }
    }

    /// Takes the rules and queues that the next look finds as the wanted ones, because another
    /// process has set them up. The wanted settings of devices stay.
    pub fn begin_again(&mut self) {
        self.set_up.clear();
        self.gone.clear();
    }

    /// Reads the state of the host, in the network namespace of the calling thread. Returns by link
    /// what differs from the first look, one sentence each.
    pub fn look(&mut self, links: &[&Link]) -> BTreeMap<String, Vec<String>> {
        let steered = links.iter().any(|link| link.path() == Some(Path::Nfqueue));
        let ruleset = if steered { steer::ruleset() } else { Ruleset::default() };
        let queues = if steered { Table::open(QUEUES_TABLE).read() } else { String::new() };
        let look = |link: &&Link| {
            let mut lines = Vec::new();
            match &link.device {
                Some(Device::Interface { name, ingress }) => {
                    let steered = link.path() == Some(Path::Nfqueue);
                    if steered {
                        self.steered(link, name, *ingress, &ruleset, &queues, &mut lines);
                    }
                    self.device(name, steered, &mut lines);
                }
                Some(Device::Bridge { from, to }) => {
                    [from, to].iter().for_each(|name| self.device(name, false, &mut lines));
                }
                None => {}
            }
            (link.name.clone(), lines)
        };
        links.iter().map(look).collect()
    }

    /// The differences in the rules and the queue of an interface.
    fn steered(
        &mut self,
        link: &Link,
        name: &str,
        ingress: bool,
        ruleset: &Ruleset,
        queues: &str,
        lines: &mut Vec<String>,
    ) {
        let what = what(name, ingress);
        let key = (name.to_owned(), ingress);
        let found = ruleset.of(name, ingress).map(|(own, by)| (rules::queue_of(&own), own, by));
        // Chains may still be there, without a rule that hands anything over.
        let handed = self.set_up.get(&key).is_some_and(|first| first.steer.is_some());
        let Some((number, own, by)) = found.filter(|(number, ..)| number.is_some() || !handed) else {
            lines.push(format!("the rules that hand {what} to altq are gone{UNSHAPED}"));
            self.gone.entry(key).or_default().gone();
            return;
        };
        if self.gone.get_mut(&key).is_some_and(Gone::there) {
            self.gone.remove(&key);
        }
        let queue = number.and_then(|number| queue(queues, number));
        let first = self.set_up.entry(key).or_insert_with(|| SetUp {
            lines: own.clone(),
            by,
            queue,
            steer: number.map(|queue| Steer {
                interface: name.to_owned(),
                ingress,
                port: rules::of_port(&own),
                queue,
                dscp: dscps(link),
                fail: self.fail.clone(),
            }),
        });
        if let Some(difference) = rules::difference(&first.lines, &own) {
            lines.push(format!("the rules for {what} were changed: {difference}"));
        }
        match (number, first.queue, queue) {
            (Some(number), Some(_), None) => {
                lines.push(format!("nobody listens at queue {number}, to which {what} goes"))
            }
            (Some(number), Some(before), Some(now)) if before.owner != now.owner => {
                lines.push(format!("another process than altq listens at queue {number}, to which {what} goes"));
            }
            (Some(number), Some(before), Some(now)) if before.copied != now.copied => {
                let (was, is) = (before.copied, now.copied);
                lines.push(format!("queue {number} copies {is} bytes of each packet, not {was}"));
            }
            _ => {}
        }
        lines.extend(ruleset.in_front(name, ingress, by));
        lines.extend(ruleset.flow_tables(name));
    }

    /// True if the next look should come soon: rules are gone, or were just set again.
    pub fn is_urgent(&self) -> bool {
        self.gone.values().any(Gone::is_urgent)
    }

    /// Sets rules again that were gone at two looks in a row, or later if they go again and again.
    /// Only where a process still listens at the queue: it removes them when it ends. Returns what
    /// came of it, a sentence for each interface and direction.
    pub fn mend(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for (key, gone) in self.gone.iter_mut().filter(|(_, gone)| gone.is_due()) {
            let what = what(&key.0, key.1);
            let Some((first, steer)) = self.set_up.get(key).and_then(|first| Some((first, first.steer.as_ref()?)))
            else {
                gone.tried();
                said.push(format!("the rules for {what} were gone before they were seen; a new start sets them again"));
                continue;
            };
            let listens = || {
                let now = queue(&Table::open(QUEUES_TABLE).read(), steer.queue);
                first.queue.is_some() && now == first.queue
            };
            if !listens() {
                continue;
            }
            gone.tried();
            let mut done = steer::set_again(steer, first.by);
            // Whoever listened may have ended meanwhile, and have removed the rules before they
            // were set. Rules that hold packets back are to stay then.
            if !listens() && !steer.fail.is_closed() {
                done = done.and(steer::unset(steer, first.by));
            }
            said.push(match done {
                Ok(()) => format!("the rules for {what} are set again"),
                Err(error) => format!("the rules for {what} cannot be set again: {error}"),
            });
        }
        said
    }

    /// The differences in a device. `steered`: rules of the firewall hand its packets over. They
    /// know it by its name.
    fn device(&mut self, name: &str, steered: bool, lines: &mut Vec<String>) {
        let Ok(interface) = Interface::find(name) else {
            let other = self.devices.get(name).and_then(|known| Interface::name_of(known.index));
            lines.push(match other {
                Some(other) if steered => format!("{name} is called {other} now{UNSHAPED}"),
                Some(other) => format!("{name} is called {other} now"),
                None => format!("there is no interface {name}"),
            });
            return;
        };
        let now = Settings { length: interface.queue_length().ok(), offloads: interface.offloads() };
        let known = self.devices.entry(name.to_owned()).or_insert(Known { index: interface.index, settings: now });
        // An interface that was made anew has another one.
        known.index = interface.index;
        let first = &known.settings;
        if let (Some(was), Some(is)) = (first.length, now.length)
            && was != is
        {
            lines.push(format!("the queue of {name} itself has room for {is} packets, and had for {was} (txqueuelen)"));
        }
        for ((which, was), (_, is)) in first.offloads.iter().zip(now.offloads) {
            let word = |on: bool| if on { "on" } else { "off" };
            if let (Some(was), Some(is)) = (*was, is)
                && was != is
            {
                lines.push(format!("{which} is {} at {name}, and was {}", word(is), word(was)));
            }
        }
    }
}

/// The packets of an interface and direction, in words.
fn what(name: &str, ingress: bool) -> String {
    if ingress { format!("what comes in at {name}") } else { format!("what leaves by {name}") }
}

/// A queue in the kernel's table of queues.
pub(crate) fn queue(table: &str, number: u16) -> Option<Queue> {
    table.lines().find_map(|line| {
        // Number, port, packets that wait, copy mode, copy range, and counters.
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let read: u64 = words.next()?.ok()?;
        let owner = words.next()?.ok()?;
        let copied = words.nth(2)?.ok()?;
        (read == u64::from(number)).then_some(Queue { owner, copied })
    })
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::*;
    use crate::netns::Namespace;
    use crate::nfqueue::steer::program::run;

    /// As Linux 6.6 prints it (`seq_show` of net/netfilter/nfnetlink_queue.c).
    const QUEUES: &str = "  24000  16345     0 2   192     0     0      317  1\n  24001 4294963  0 1     0\n";

    #[test]
    fn queues_are_read_from_the_kernels_table() {
        assert_eq!(queue(QUEUES, 24000), Some(Queue { owner: 16345, copied: 192 }));
        assert_eq!([queue(QUEUES, 24002), queue("", 1)], [None; 2]);
    }

    #[test]
    fn a_device_that_is_set_otherwise_is_said() {
        let Ok(namespace) = Namespace::new() else { return eprintln!("SKIPPED: no network namespaces here") };
        let test = || {
            if let Err(error) = run("ip", &["-batch", "-"], "link add name a type veth peer name b\n") {
                return eprintln!("SKIPPED: no veth here ({error})");
            }
            let text = "link l { device bridge a b  rate 1Mbit/s  scheduler fifo  class all { default } }";
            let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
            let links: Vec<&Link> = policy.links.iter().collect();
            let mut drift = Drift::default();
            let look = |drift: &mut Drift| drift.look(&links).remove("l").unwrap();
            assert_eq!(look(&mut drift), Vec::<String>::new());
            // The queue of a veth has room for 1000 packets (DEFAULT_TX_QUEUE_LEN of
            // linux/netdevice.h).
            run("ip", &["link", "set", "dev", "b", "txqueuelen", "77"], "").unwrap();
            let said = "the queue of b itself has room for 77 packets, and had for 1000 (txqueuelen)";
            assert_eq!(look(&mut drift), [said]);
            drift.begin_again();
            assert_eq!(look(&mut drift), [said], "what a device was set to is not taken anew");
            // Rules of the firewall would no longer match; a bridge's sockets know it by its index.
            let device = |drift: &mut Drift, steered: bool| {
                let mut lines = Vec::new();
                drift.device("b", steered, &mut lines);
                lines
            };
            run("ip", &["link", "set", "dev", "b", "name", "c"], "").unwrap();
            assert_eq!(look(&mut drift), ["b is called c now"]);
            assert_eq!(device(&mut drift, true), [format!("b is called c now{UNSHAPED}")]);
            run("ip", &["link", "set", "dev", "c", "name", "b"], "").unwrap();
            assert_eq!(device(&mut drift, true), [said]);
            run("ip", &["link", "del", "dev", "a"], "").unwrap();
            assert_eq!(look(&mut drift), ["there is no interface a", "there is no interface b"]);
        };
        if let Err(error) = namespace.run(test) {
            eprintln!("SKIPPED: {error}");
        }
    }
}
