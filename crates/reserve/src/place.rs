//! The policy's class for reservations with its limits, in the form that admission needs.

use std::collections::HashSet;

use altq_config::Link;
use altq_engine::classify::{Order, RuleSet};
use altq_engine::link::Overhead;
use altq_engine::queue;
use altq_engine::schedule::promise::{Kept, Leaf};
use altq_engine::schedule::{Entry, ReservedWords};
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassId, QueueSpec};
use altq_engine::units::{Nanos, Rate};

/// The class of a link below which reservations are made.
///
/// Making one takes time that is linear in the classes and rules of the policy.
pub struct Place {
    /// The name of the link.
    pub(crate) link: String,
    /// The name of the class.
    pub(crate) class: String,
    /// The class.
    pub(crate) id: ClassId,
    /// What may be reserved, in charged bit/s.
    pub(crate) reservable: u64,
    /// The most that the bursts may add up to, in bytes.
    pub(crate) buffer: u64,
    pub(crate) mtu: u32,
    pub(crate) overhead: Overhead,
    /// The longest that a packet may wait.
    pub(crate) delay: Option<Nanos>,
    pub(crate) lifetime: Option<Nanos>,
    pub(crate) most: u64,
    /// The most that one owner may reserve, in charged bit/s.
    pub(crate) owner_rate: Option<u64>,
    pub(crate) owner_most: Option<u64>,
    /// The words of a reservation's class, in the scheduler that serves it.
    pub(crate) words: ReservedWords,
    /// The class's own words.
    pub(crate) settings: Settings,
    /// The delay bounds of the link without reservations; `None` if its scheduler has none.
    pub(crate) bounds: Option<Box<dyn Kept>>,
    /// The part of the class's guarantee that the policy's classes below it do not have, in bit/s.
    pub(crate) own_rate: u64,
    /// Whether the length of its next packet is a guess.
    pub(crate) guesses: bool,
    /// Whether it holds packets of its own even with classes below it.
    pub(crate) led_to: bool,
    /// Whether the policy has classes below it.
    pub(crate) has_children: bool,
    /// The policy's rules, in the order in which they are tried.
    pub(crate) rules: RuleSet,
    pub(crate) default: Option<ClassId>,
    /// Names of the policy's classes that a reservation's class could also get.
    pub(crate) taken: HashSet<String>,
}

impl Place {
    /// Finds the place of a link. `None` if the policy has no class for reservations there.
    pub fn of(link: &Link) -> Option<Place> {
        let reservations = link.reservations.as_ref()?;
        let id = reservations.class;
        let entry: &'static Entry = link.entry_of(id)?;
        let words = entry.reservation?;
        let spec = link.spec.classes.get(id as usize)?;
        let class = link.class_name(id).to_owned();
        let children = link.children();
        let children = children.get(id as usize)?;
        let below = children.iter().map(|child| link.guarantee(*child).unwrap_or_default().as_bit_s());
        let prefix = format!("{class}.");
        let set = &link.spec.rules;
        let rules = set.tried().into_iter().filter_map(|at| set.rules.get(at as usize).cloned()).collect();
        Some(Place {
            link: link.name.clone(),
            id,
            reservable: link.reservable().as_bit_s(),
            buffer: link.reservation_buffer(),
            mtu: link.spec.mtu,
            overhead: link.spec.overhead,
            delay: reservations.delay(),
            lifetime: reservations.lifetime(),
            most: reservations.most(),
            owner_rate: reservations.owner_rate().map(Rate::as_bit_s),
            owner_most: reservations.owner_most(),
            words,
            settings: spec.settings.clone(),
            bounds: (entry.kept_bounds)(&link.spec),
            own_rate: {
                let own = link.guarantee(id).unwrap_or_default().as_bit_s();
                own.saturating_sub(below.fold(0, u64::saturating_add))
            },
            guesses: spec.queue.as_ref().is_some_and(guesses),
            led_to: set.rules.iter().map(|rule| rule.class).chain(link.spec.default).any(|to| to == id),
            has_children: !children.is_empty(),
            rules: RuleSet { rules, order: Order::First, interfaces: set.interfaces.clone() },
            default: link.spec.default,
            taken: link.classes.iter().map(|c| &c.name).filter(|name| name.starts_with(&prefix)).cloned().collect(),
            class,
        })
    }

    /// The same place without the policy's rules, for a caller that adds them itself: changes of
    /// rules then have only the rules of reservations.
    pub fn without_rules(mut self) -> Place {
        self.rules.rules.clear();
        self
    }

    /// The same place for an engine in which the classes have other numbers.
    pub fn renumbered(mut self, number: impl Fn(ClassId) -> ClassId) -> Place {
        (self.id, self.default) = (number(self.id), self.default.map(&number));
        self
    }

    /// The name of the class with that of its link, `LINK/CLASS`, as in `within_class`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.link, self.class)
    }

    /// Whether `within_class` means this place; `None` means any.
    pub fn answers_to(&self, within: Option<&str>) -> bool {
        within.is_none_or(|name| {
            name == self.class || name.split_once('/') == Some((self.link.as_str(), self.class.as_str()))
        })
    }

    /// The time to live that was asked for, limited to what the policy allows.
    pub(crate) fn ttl(&self, asked: Option<Nanos>) -> Option<Nanos> {
        asked.into_iter().chain(self.lifetime).min()
    }

    /// The name of the class of reservation `id`; `None` if the policy has a class of that name.
    pub(crate) fn name(&self, id: u64) -> Option<String> {
        let name = format!("{}.{id}", self.class);
        (!self.taken.contains(&name)).then_some(name)
    }

    /// The class itself as the scheduler's bounds count it, when its reservations are guaranteed
    /// `charged` in all.
    pub(crate) fn leaf(&self, charged: u64) -> Leaf<'_> {
        let rate = Rate::bit_s(self.own_rate.saturating_sub(charged));
        Leaf { settings: &self.settings, rate, guesses: self.guesses, holds: false }
    }
}

/// Whether the length of the next packet in a queue is a guess.
pub(crate) fn guesses(queue: &QueueSpec) -> bool {
    queue::find(queue.name).is_none_or(queue::Entry::guesses)
}
