//! Turns a link into a tree of qdiscs.
//!
//! Each scheduler of the link becomes a qdisc with classes, each queue a qdisc in its class. A
//! scheduler that shapes (htb, hfsc) has a class for the link, above all others. Any other
//! scheduler is inside the only class of an htb with the link's rate, unless the link has
//! `regulator none`.
//!
//! A qdisc with classes gets the rules of the policy that lead to its classes or below them, in the
//! policy's order. A packet comes to a qdisc inside another one only if the first rule that it
//! matches leads there. This rule is also the first match among the inner qdisc's rules. So the
//! qdiscs together find the class that the policy names.

pub mod condition;
mod filters;
mod flat;
mod given;
mod hfsc;
mod htb;
mod queues;
mod tables;

use std::collections::HashMap;

use altq_config::diagnostic::MOST_ERRORS;
use altq_config::{Device, Diagnostic, Link, Span};
use altq_engine::classify::{Field, Term, Values};
use altq_engine::link::{Framing, Overhead};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Rate;

use crate::handle::Handle;
use crate::tree::{Filter, Layer, Match, Protocol, QdiscWords, SizeTable, Target, Tree};
use filters::Filters;
use given::Given;

/// What the translation must know about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Bytes of the header below layer 3 that the kernel includes in a packet's length on this
    /// device: 14 for Ethernet, 0 for PPP and tunnels.
    pub header: u32,
    /// Whether the kernel has the classifier flower.
    pub flower: bool,
    /// Whether the kernel has the classifier fw.
    pub fw: bool,
}

impl Host {
    /// The same host without a classifier that the kernel turned out to lack. `None` if the host
    /// already lacks it, or if no other classifier can replace it.
    pub fn without(&self, classifier: &str) -> Option<Host> {
        match classifier {
            "flower" if self.flower => Some(Host { flower: false, ..*self }),
            "fw" if self.fw => Some(Host { fw: false, ..*self }),
            _ => None,
        }
    }

    /// This host, and the same host without one or both of its classifiers.
    pub fn variants(&self) -> Vec<Host> {
        let mut found = vec![*self];
        for classifier in ["flower", "fw"] {
            let less: Vec<Host> = found.iter().filter_map(|host| host.without(classifier)).collect();
            found.extend(less);
        }
        found
    }
}

impl Default for Host {
    /// Ethernet, and a kernel with all classifiers.
    fn default() -> Host {
        Host { header: 14, flower: true, fw: true }
    }
}

/// Where a tree is on its device, and its first handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The class that contains it, or [`Handle::ROOT`].
    pub parent: Handle,
    /// The major number of its first qdisc. Others follow.
    pub first: u16,
}

impl Place {
    /// The tree is the device's own qdisc, with the handle `1:`.
    pub const ROOT: Place = Place { parent: Handle::ROOT, first: 1 };
}

/// Minor number of the class that stands for the link. Other classes have the number that they have
/// in the policy.
const LINK: u16 = 0xfff0;
/// The most qdiscs inside each other. The kernel allows 8 (`qdisc_graft` in net/sched/sch_api.c),
/// and the outermost one is altq's switch.
const NESTED: usize = 7;
/// The most qdiscs of a tree, so that there are handles for two trees on one device.
const MOST: u32 = 0x3000;

/// The tree for a link.
///
/// # Errors
/// What the kernel's qdiscs cannot do, with its places in the policy; at most 20 findings.
pub fn translate(link: &Link, host: &Host, place: Place) -> Result<Tree, Vec<Diagnostic>> {
    let mut builder = Builder::new(link, host, place);
    builder.link(place.parent);
    builder.nested(place.parent);
    builder.errors.truncate(MOST_ERRORS);
    if builder.errors.is_empty() { Ok(builder.tree) } else { Err(builder.errors) }
}

/// Whether the kernel can execute a link, as far as the policy alone shows it. Returns what the
/// kernel does differently.
///
/// # Errors
/// As [`translate`].
pub fn fits(link: &Link) -> Result<Vec<String>, Vec<Diagnostic>> {
    translate(link, &Host::default(), Place::ROOT).map(|tree| {
        let assumed = assumed(link, &tree);
        tree.notes.into_iter().chain(assumed).collect()
    })
}

/// A note about a tree that was made for [`Host::default`], without a look at the interface, where
/// the header of the interface makes a difference.
pub fn assumed(link: &Link, tree: &Tree) -> Option<String> {
    let first = tree.qdiscs.first().map(|first| &first.words);
    let whole_cake = matches!(first, Some(QdiscWords::Cake { sizes: Some(_), .. }));
    (link.spec.overhead != Overhead::NONE && !whole_cake).then(|| {
        "this is for an interface with an Ethernet header of 14 bytes, which the kernel counts by itself; at PPP and \
         tunnels, where it counts none, `altq run` adds 14 bytes more to each packet"
            .to_owned()
    })
}

/// A rule, its class, and the filters for it.
type RuleFilters = (u32, ClassId, Vec<(Protocol, Match)>);

/// A tree that is being made.
struct Builder<'a> {
    link: &'a Link,
    host: &'a Host,
    children: Vec<Vec<ClassId>>,
    holders: Vec<bool>,
    /// For each class, the class whose scheduler serves it.
    owner: Vec<ClassId>,
    /// Rules with their class, in the order in which they are tried.
    rules: Vec<RuleFilters>,
    first: u16,
    made: u32,
    tree: Tree,
    errors: Vec<Diagnostic>,
}

impl<'a> Builder<'a> {
    fn new(link: &'a Link, host: &'a Host, place: Place) -> Builder<'a> {
        let spec = &link.spec;
        let mut owner = vec![ROOT; spec.classes.len()];
        for (id, class) in spec.classes.iter().enumerate().skip(1) {
            // Parents come before their children.
            let parent = class.parent as usize;
            let holds = spec.classes.get(parent).is_some_and(|parent| parent.scheduler.is_some());
            owner[id] = if holds { class.parent } else { owner.get(parent).copied().unwrap_or(ROOT) };
        }
        let mut builder = Builder {
            link,
            host,
            children: link.children(),
            holders: link.holders(),
            owner,
            rules: Vec::new(),
            first: place.first,
            made: 0,
            tree: Tree::default(),
            errors: Vec::new(),
        };
        for number in spec.rules.tried() {
            let Some(rule) = spec.rules.rules.get(number as usize) else { continue };
            let found = condition::conditions(rule, &spec.rules.interfaces).and_then(|conditions| {
                let mut found = Vec::new();
                for condition in conditions {
                    found.extend(filters::matches(&condition, host)?);
                }
                Ok(filters::gathered(found))
            });
            match found {
                Ok(found) => builder.rules.push((number, rule.class, found)),
                Err(why) => {
                    let span = link.rules.get(number as usize).copied().unwrap_or(link.span);
                    builder.refuse(span, format!("the kernel's filters cannot express this rule: {why}"), None);
                }
            }
        }
        builder
    }

    /// The whole link, below `parent`.
    fn link(&mut self, parent: Handle) {
        let link = self.link;
        if let Some(Device::Bridge { to, .. }) = &link.device {
            let help = format!("write `device {to}`, and let the kernel bridge or route; or use `path bridge`");
            let message = "the kernel's qdiscs shape one interface, not a bridge of two";
            self.refuse(self.root("device"), message, Some(help));
            return;
        }
        if link.adapt.is_some() {
            let help = format!("leave `adapt` and its braces out; {}", self.way());
            let message = "the rate of a link that the kernel executes cannot adapt: nobody probes its line";
            self.refuse(self.root("adapt"), message, Some(help));
        }
        if let Some(reservations) = &link.reservations {
            let help = format!("leave `reservations` out; {}", self.way());
            let message =
                "a link that the kernel executes takes no reservations: only altq itself can add their classes";
            self.refuse(reservations.span, message, Some(help));
        }
        if let Some(root) = link.spec.classes.first() {
            let given = Given::new(&root.settings);
            self.nobody_took(ROOT, "the kernel's qdiscs have", given.rest());
        }
        self.framing();
        if link.spec.classes.len() > 1 {
            self.packets_of_link();
            self.no_default();
        }
        match (link.spec.scheduler.name, link.spec.classes.len()) {
            (_, 1) => {
                if let Some(parent) = self.shaped(parent) {
                    self.queue(ROOT, parent);
                }
            }
            ("htb", _) => self.htb(parent),
            ("hfsc", _) => self.hfsc(parent),
            _ => {
                if self.whole_cake(parent) {
                    return;
                }
                if let Some(parent) = self.shaped(parent) {
                    self.inner(ROOT, parent);
                }
            }
        }
        self.general_notes();
        self.sight_notes();
    }

    /// Adds the notes that hold for every link: how the kernel counts bytes and finds headers.
    fn general_notes(&mut self) {
        let overhead = &self.link.spec.overhead;
        let header = self.host.header;
        // A cake that shapes by itself counts from layer 3 on and splits super-packets, so it needs
        // no such note.
        let first = self.tree.qdiscs.first().map(|first| &first.words);
        if matches!(first, Some(QdiscWords::Cake { sizes: Some(_), .. })) {
            return;
        }
        if *overhead == Overhead::NONE && header > 0 {
            self.note(format!(
                "the kernel counts packets with the {header} bytes of their header below layer 3; without \
                 `overhead`, altq's own paths count them from layer 3 on"
            ));
        } else if *overhead != Overhead::NONE {
            self.overhead_notes();
        }
        let flower =
            self.rules.iter().flat_map(|(.., found)| found).any(|(_, found)| matches!(found, Match::Flower(_)));
        if flower {
            self.note(
                "the kernel's flower finds no ports in fragments and in packets of UDP-Lite and DCCP: rules with ports \
                 do not match them"
                    .to_owned(),
            );
        }
        let deep = |found: &Match| match found {
            Match::U32 { keys, .. } => keys.iter().any(|key| key.offset >= 20),
            _ => false,
        };
        let mut all = self.rules.iter().flat_map(|(.., found)| found);
        if all.any(|(protocol, found)| *protocol == Protocol::Ip && deep(found)) {
            self.note(
                "the kernel's u32 finds ports, TCP flags and SPI after a header of 20 bytes (IPv4) or 40 bytes (IPv6) \
                 only: packets with options or extension headers do not match such rules"
                    .to_owned(),
            );
        }
        let mut all = self.rules.iter().flat_map(|(.., found)| found);
        if all.any(|(protocol, _)| matches!(protocol, Protocol::Ip | Protocol::Ipv6)) {
            self.note(
                "a packet with a VLAN tag matches no rule about IP on the interface that carries the tags; shape the \
                 VLAN's own interface"
                    .to_owned(),
            );
        }
    }

    /// Adds notes about what the kernel's filters see of packets.
    fn sight_notes(&mut self) {
        let link = self.link;
        let ingress = matches!(link.device, Some(Device::Interface { ingress: true, .. }));
        let has = |of: &dyn Fn(&Term) -> bool| link.spec.rules.rules.iter().flat_map(|rule| &rule.terms).any(of);
        if has(&|term: &Term| matches!(term.field, Field::Src | Field::Dst | Field::Host)) {
            self.note(
                "the kernel's filters see addresses as they are at the interface: where they are translated (NAT), \
                 rules with addresses of the hosts behind it match nothing; `path nfqueue` sees these hosts"
                    .to_owned(),
            );
        }
        if ingress && has(&|term: &Term| term.field == Field::Mark) {
            self.note(
                "the kernel's filters look at what comes in before the firewall does, so no rule of the firewall has \
                 set a mark yet"
                    .to_owned(),
            );
        }
        // Without an upper bound a super-packet matches where its segments do.
        let bounded = |term: &Term| match &term.values {
            Values::Ranges(ranges) if term.negated => ranges.iter().any(|(from, _)| *from > 0),
            Values::Ranges(ranges) => ranges.iter().any(|(_, to)| *to < u32::from(u16::MAX)),
            _ => true,
        };
        if has(&|term: &Term| term.field == Field::Length && bounded(term)) {
            self.note(
                "the kernel's filters compare the length of a whole super-packet (GSO, GRO), altq's own paths that of \
                 one segment: a rule with an upper bound misses super-packets of short segments"
                    .to_owned(),
            );
        }
    }

    /// Adds notes about an overhead: which counters leave it out, and what super-packets are
    /// charged.
    fn overhead_notes(&mut self) {
        let Some(sizes) = self.sizes() else { return };
        let mut missing = sizes.overhead.max(0);
        if self.tree.sizes.is_some() {
            // With a size table the kernel starts from the length of the buffer. It has the headers
            // of Ethernet, IP and TCP only once (`__qdisc_calculate_pkt_len` in
            // net/sched/sch_api.c).
            missing += 54;
        } else {
            self.note(
                "the kernel's counters, and the quanta of its htb and drr, count packets without the overhead"
                    .to_owned(),
            );
        }
        let whole = u64::from(self.link.spec.overhead.charge(self.link.spec.mtu)).max(1);
        let thousandths = missing as u64 * 1000 / whole;
        self.note(format!(
            "the kernel charges a super-packet of several segments (GSO, GRO) the overhead of one packet: up to \
             {}.{} % too little; if that matters, turn off gso and tso of this interface, and gro of those by which \
             packets come in (ethtool -K)",
            thousandths / 10,
            thousandths % 10
        ));
    }

    /// Refuses a framing that the kernel's size tables do not have.
    fn framing(&mut self) {
        if self.link.spec.overhead.framing == Framing::Ptm && !self.is_whole_cake() {
            let help = format!("write an overhead in plain bytes, about 1/64 more; {}", self.way());
            let message = "the kernel's size tables have no PTM; only its cake has it, as the only class of a link \
                           with `scheduler fifo`";
            self.refuse(self.root("overhead"), message, Some(help));
        }
    }

    /// What the kernel must charge for a packet in addition to the length that it sees. With
    /// `overhead none` there is no size table, because the kernel would forget the true length of
    /// super-packets (`__qdisc_calculate_pkt_len` in net/sched/sch_api.c).
    fn sizes(&self) -> Option<SizeTable> {
        let Overhead { bytes, mpu, framing } = self.link.spec.overhead;
        let layer = if framing == Framing::Atm { Layer::Atm } else { Layer::Ethernet };
        // A policy counts from layer 3 on, the kernel with its header below.
        let overhead = bytes - self.host.header as i32;
        let none = self.link.spec.overhead == Overhead::NONE || overhead == 0 && mpu == 0 && layer == Layer::Ethernet;
        (!none).then_some(SizeTable { overhead, mpu, layer })
    }

    /// Adds the qdisc of a scheduler that does not shape, for a class that holds it.
    fn inner(&mut self, node: ClassId, parent: Handle) {
        let link = self.link;
        let Some(scheduler) = link.spec.scheduler_at(node) else { return };
        match scheduler.name {
            "fifo" => self.fifo(node, parent),
            "priq" => self.prio(node, parent),
            "drr" => self.drr(node, parent),
            "wfq" => self.wfq(node, parent),
            name => {
                let span = self.place(node, "scheduler");
                let message = match name {
                    "htb" | "hfsc" => format!(
                        "the kernel's {name} would shape inside another scheduler, which would take a class that is \
                         held back for one that has nothing to send"
                    ),
                    _ => format!("the kernel has no scheduler `{name}`"),
                };
                let help = format!("the kernel has htb, hfsc, drr, priq, fifo, and wfq with weights; {}", self.way());
                self.refuse(span, message, Some(help));
            }
        }
    }

    /// Adds what is inside a class: the scheduler that it holds, or its queue.
    fn inside(&mut self, class: ClassId, parent: Handle) {
        let holds = self.link.spec.classes.get(class as usize).is_some_and(|class| class.scheduler.is_some());
        if holds { self.inner(class, parent) } else { self.queue(class, parent) }
    }

    /// The classes that the scheduler of a class serves. Refuses inner classes with packets of
    /// their own, and packets of the class itself.
    fn served(&mut self, node: ClassId) -> Vec<ClassId> {
        let ids = 1..self.link.spec.classes.len() as ClassId;
        let served: Vec<ClassId> = ids.filter(|id| self.owner[*id as usize] == node).collect();
        for id in served.iter().copied() {
            let inner = self.children[id as usize].iter().any(|child| self.owner[*child as usize] == node);
            if inner && self.holders[id as usize] {
                self.own_packets(id, self.place(id, "default"));
            }
        }
        if node != ROOT && self.holders[node as usize] && !served.is_empty() {
            self.own_packets(node, self.place(node, "default"));
        }
        served
    }

    /// Refuses packets of the link itself where it has classes. The kernel's qdiscs have no queue
    /// beside their classes: they would drop these packets, or let them pass unshaped.
    fn packets_of_link(&mut self) {
        let link = self.link;
        if link.spec.default == Some(ROOT) {
            self.own_packets(ROOT, self.root("default"));
        }
        let rules = self.rules.iter().filter(|(_, class, _)| *class == ROOT);
        let places: Vec<Span> =
            rules.map(|(rule, ..)| link.rules.get(*rule as usize).copied().unwrap_or(link.span)).collect();
        for place in places {
            self.own_packets(ROOT, place);
        }
    }

    /// Refuses a link with classes and without a default class. The kernel's qdiscs also get ARP
    /// and IPv6's neighbour discovery: without a class for them no neighbour would be found, so
    /// nothing would leave.
    fn no_default(&mut self) {
        if self.link.spec.default.is_none() {
            let message = "without a default class the kernel's qdiscs would drop ARP and neighbour discovery";
            let help = format!("write `default` in the class that is to get them; {}", self.way());
            self.refuse(self.link.span, message, Some(help));
        }
    }

    fn own_packets(&mut self, class: ClassId, place: Span) {
        let name = self.link.class_name(class).to_owned();
        let message = format!("`{name}` has classes below it and packets of its own, which the kernel cannot do");
        let help = format!("give these packets a class of their own below `{name}`; {}", self.way());
        self.refuse(place, message, Some(help));
    }

    /// True if a class is served by the scheduler of `node` and has no classes below it there.
    fn is_leaf(&self, class: ClassId, node: ClassId) -> bool {
        !self.children[class as usize].iter().any(|child| self.owner[*child as usize] == node)
    }

    /// The class served by the scheduler of `node` that is this class or above it.
    fn spot(&self, class: ClassId, node: ClassId) -> Option<ClassId> {
        let mut at = class;
        while at != ROOT {
            if self.owner.get(at as usize) == Some(&node) {
                return Some(at);
            }
            at = self.link.spec.classes.get(at as usize)?.parent;
        }
        None
    }

    /// The class for packets that no rule matches, among those of the scheduler of `node`.
    fn default(&self, node: ClassId) -> Option<ClassId> {
        self.link.spec.default.and_then(|class| self.spot(class, node))
    }

    /// The filters of a qdisc. `to` returns where the packets of a class go. All packets that no
    /// rule matches go to `rest`, where the qdisc has no default class of its own.
    fn filters(
        &mut self,
        node: ClassId,
        qdisc: Handle,
        to: &dyn Fn(ClassId) -> Handle,
        rest: Option<Handle>,
    ) -> Vec<Filter> {
        let mut filters = Filters::new(qdisc);
        let mut wrong = None;
        for (rule, class, found) in &self.rules {
            let Some(spot) = self.spot(*class, node) else { continue };
            let target = to(spot);
            for (protocol, found) in found {
                let added = filters.add(*protocol, found.clone(), Target::Class(target), Some(*rule));
                wrong = wrong.or(added.err().map(|why| (*rule, why)));
            }
        }
        if let Some(rest) = rest {
            let keys = vec![crate::tree::Key { offset: 0, value: 0, mask: 0 }];
            let all = Match::U32 { keys, mark: None, indev: None };
            let added = filters.add(Protocol::All, all, Target::Class(rest), None);
            wrong = wrong.or(added.err().map(|why| (0, why)));
        }
        if let Some((rule, why)) = wrong {
            let span = self.link.rules.get(rule as usize).copied().unwrap_or(self.link.span);
            self.refuse(span, format!("the kernel's filters cannot express this rule: {why}"), None);
        }
        filters.done()
    }

    /// Refuses more qdiscs inside each other than the kernel allows.
    fn nested(&mut self, parent: Handle) {
        let mut depths: HashMap<u16, usize> = HashMap::new();
        let mut deepest = 0;
        for qdisc in &self.tree.qdiscs {
            let above =
                if qdisc.parent == parent { 0 } else { depths.get(&qdisc.parent.major()).copied().unwrap_or(0) };
            depths.insert(qdisc.handle.major(), above + 1);
            deepest = deepest.max(above + 1);
        }
        if deepest > NESTED {
            let message =
                format!("{deepest} of the kernel's qdiscs would stand inside each other, and at most {NESTED} can");
            self.refuse(self.root("scheduler"), message, None);
        }
    }

    /// The next handle of a qdisc.
    fn handle(&mut self) -> Handle {
        self.made += 1;
        if self.made == MOST {
            self.refuse(self.link.span, format!("the kernel's tree would have more than {MOST} qdiscs"), None);
        }
        Handle::new(self.first.wrapping_add((self.made - 1) as u16), 0)
    }

    /// Where a word of a class is written.
    fn place(&self, class: ClassId, word: &str) -> Span {
        self.link.classes.get(class as usize).map_or(self.link.span, |class| class.place(word))
    }

    /// Where a word of the link is written.
    fn root(&self, word: &str) -> Span {
        self.place(ROOT, word)
    }

    /// The advice to use a path that has every word.
    fn way(&self) -> &'static str {
        match self.link.device {
            Some(Device::Bridge { .. }) => "or use `path bridge`",
            _ => "or use `path nfqueue`",
        }
    }

    fn refuse(&mut self, span: Span, message: impl Into<String>, help: Option<String>) {
        let help = help.unwrap_or_else(|| self.way().to_owned());
        self.errors.push(Diagnostic::error("kernel-cannot", span, message).help(help));
    }

    /// Refuses words of a class that the kernel does not have.
    fn nobody_took(&mut self, class: ClassId, has: &str, rest: Vec<&'static str>) {
        // The words of a meter belong together.
        for word in rest.into_iter().filter(|word| !word.starts_with("meter ")) {
            let span = self.place(class, word);
            self.refuse(span, format!("{has} no `{word}`"), Some(format!("leave it out; {}", self.way())));
        }
    }

    fn note(&mut self, note: String) {
        if !self.tree.notes.contains(&note) {
            self.tree.notes.push(note);
        }
    }

    /// A rate in bytes a second, the kernel's unit, rounded up, and at least 1.
    fn bytes_s(&mut self, rate: Rate) -> u64 {
        let bits = rate.as_bit_s();
        if bits == 0 {
            self.note("the kernel has no rate of 0: 8 bit/s is used instead".to_owned());
        } else if !bits.is_multiple_of(8) {
            self.note("the kernel counts rates in whole bytes a second: they are rounded up".to_owned());
        }
        bits.div_ceil(8).max(1)
    }
}
