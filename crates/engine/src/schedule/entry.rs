//! What the registry knows of a scheduler: all that others ask, so that nobody else needs to know
//! one by its name.

use super::Build;
use super::check::{Finding, View};
use super::promise::{self, Bounds, Promised};
use crate::settings::{Limit, Settings, Value, Word};
use crate::spec::{LinkSpec, QueueSpec};
use crate::units::Rate;

/// What the registry knows of a scheduler. Parsers, checks, promises, printers, benchmarks and docs
/// read it from here.
///
/// [`Entry::new`] has what holds for a scheduler that says nothing; an entry states what differs:
///
/// ```text
/// pub const ENTRY: Entry = Entry { class_words: &[…], promises, ..Entry::new("drr", "in turn", build) };
/// ```
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in policies.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Words behind the scheduler's own name.
    pub words: &'static [Word],
    /// Words in a class that it serves.
    pub class_words: &'static [Word],
    /// What some of the class's words mean to those who do not know the scheduler.
    pub roles: &'static [(&'static str, Role)],
    /// Words that others use, and what to write here.
    pub foreign: &'static [(&'static str, &'static str)],
    /// The scheduler's word that says which of its variants it is: shown with its default where it
    /// is not written.
    pub variant: Option<&'static str>,
    /// Its classes stand side by side: the engine refuses one below another.
    pub side_by_side: bool,
    /// Packets leave in the order in which they came, whatever their class.
    pub in_order: bool,
    /// In which order it serves classes, as people are told.
    pub order: Order,
    /// By its own words: among equals classes go in the order in which they were made.
    pub order_of_making: fn(&Settings) -> bool,
    /// The queue of a class that names none, from the words of the scheduler and of the class.
    pub queue: fn(&Settings, &Settings) -> QueueSpec,
    /// A word of a class that stands for a queue.
    pub queue_word: Option<QueueWord>,
    /// What a class is guaranteed by its words, if the scheduler guarantees anything.
    pub guarantee: fn(&Settings) -> Option<Rate>,
    /// Its own [`check`](Entry::check) adds up what classes are guaranteed; else that is a sum of
    /// rates that may be no more than the class above has.
    pub adds_up_itself: bool,
    /// What the classes of a place are promised: rates and latencies.
    pub promises: Promised,
    /// Why no class has a delay bound, by the scheduler's own words.
    pub no_bound: fn(&Settings) -> Option<&'static str>,
    /// Delay bounds of the classes of the link's own scheduler, where it knows better ones than
    /// follow from its promises.
    pub bounds: Option<Bounds>,
    /// What a class may send at once within its guarantee, in bytes on the wire.
    pub burst: fn(&LinkSpec, &Settings) -> u64,
    /// What is known of packets of the class that holds the scheduler.
    pub own_packets: OwnPackets,
    /// What classes must keep to, beyond what [`Scheduler`](super::Scheduler) refuses.
    pub check: fn(&View<'_>, &mut Vec<Finding>),
    /// What `tc -s` prints of it and of its classes.
    pub tc: TcForm,
    /// What `altqstat` prints of it and of its classes.
    pub altqstat: AltqstatForm,
    /// Makes one.
    pub build: Build,
}

/// What a class's word means to those who do not know the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A rate that it can count on.
    Guarantee,
    /// A rate that it can count on and is served at before others.
    Urgent,
    /// A curve by which classes with packets are served, whatever others want.
    Deadline,
    /// A curve: its part of what others leave.
    Share,
    /// Its weight against others.
    Weight,
    /// Who goes first.
    Priority,
    /// The most that it may have: a rate, or a curve of which the last rate counts.
    Ceiling,
    /// The most that it may have; where it is not written, its guarantee is.
    CeilingOrGuarantee,
    /// A rate to which it is held, and by which a scheduler inside of it measures shares.
    Shape,
    /// A flag: without it, its guarantee is the most that it may have.
    Borrow,
}

/// In which order a scheduler serves classes, as people are told.
#[derive(Clone, Copy)]
pub enum Order {
    /// By its name: that says as much as a line could.
    Name,
    /// In half a sentence.
    Said(&'static str),
    /// By [`Role::Priority`] within guarantee, the highest number first; then what the function
    /// makes of the scheduler's own words.
    Priority(fn(&Settings) -> &'static str),
}

/// What is known of packets that go to the class that holds a scheduler, beside those that it
/// serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPackets {
    /// Nothing: where there are any, nobody is promised anything.
    Unknown,
    /// They take part as a class without words.
    Plain,
    /// They take part as a class that is guaranteed what the others are not.
    Rest,
}

/// A word of a class that stands for a queue: it goes when a policy has been read, and the queue is
/// the class's.
#[derive(Clone, Copy)]
pub struct QueueWord {
    /// The word.
    pub word: &'static str,
    /// The queue, from the words of the scheduler and of the class, the rate by which shares are
    /// measured and the link's MTU; `None` where the word says nothing.
    pub queue: fn(&Settings, &Settings, Rate, u32) -> Option<QueueSpec>,
}

/// What `tc -s` prints of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcForm {
    /// The words of scheduler and class, and what they count.
    Words,
    /// The words of a class that are written, under tc's names for them.
    Renamed(&'static [(&'static str, &'static str)]),
    /// Rate and ceil with a bucket of tokens each (tc-htb(8)).
    Tokens,
}

/// What `altqstat` prints of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AltqstatForm {
    /// A list of queues, the ten with the highest rates.
    Queues,
    /// A class with its place in the tree and its idle time.
    Tree,
    /// A class with its service curves.
    Curves,
    /// A class with its priority.
    Priorities,
    /// All classes as one queue.
    One,
}

impl Entry {
    /// A scheduler that guarantees nothing, has no words and gives classes a plain queue of 50
    /// packets.
    pub const fn new(name: &'static str, about: &'static str, build: Build) -> Entry {
        Entry {
            name,
            about,
            words: &[],
            class_words: &[],
            roles: &[],
            foreign: &[],
            variant: None,
            side_by_side: false,
            in_order: false,
            order: Order::Name,
            order_of_making: |_| false,
            queue: |_, _| QueueSpec::plain(Limit::Packets(50)),
            queue_word: None,
            guarantee: |_| None,
            adds_up_itself: false,
            promises: |place| promise::none(place, "its scheduler promises nothing"),
            no_bound: |_| None,
            bounds: None,
            burst: |link, _| u64::from(link.overhead.charge(link.mtu)),
            own_packets: OwnPackets::Unknown,
            check: |_, _| {},
            tc: TcForm::Words,
            altqstat: AltqstatForm::Queues,
            build,
        }
    }

    /// The words of a class that have a role, in the order of the entry.
    pub fn words_of(&self, role: Role) -> impl Iterator<Item = &'static str> {
        self.roles.iter().filter(move |(_, of)| *of == role).map(|(word, _)| *word)
    }

    /// The first word of a class that has a role.
    pub fn word_of(&self, role: Role) -> Option<&'static str> {
        self.words_of(role).next()
    }

    /// What a class has for its [`Role::Priority`]: what is written, or the word's default. `None`
    /// where the scheduler knows no such word.
    pub fn priority(&self, class: &Settings) -> Option<u64> {
        let word = self.class_words.iter().find(|word| Some(word.name) == self.word_of(Role::Priority))?;
        class.int(word.name).or_else(|| word.default.parse().ok())
    }

    /// The most that a class may have by its words, if they say so.
    pub fn ceiling(&self, class: &Settings) -> Option<Rate> {
        let guarantee = || (self.guarantee)(class).unwrap_or_default();
        let one = |(word, role): &(&'static str, Role)| match role {
            Role::Ceiling | Role::Shape => rate(class, word),
            Role::CeilingOrGuarantee => Some(rate(class, word).unwrap_or_else(guarantee)),
            Role::Borrow if !class.flag(word) => Some(guarantee()),
            _ => None,
        };
        self.roles.iter().filter_map(one).min()
    }

    /// What the classes below a class share: what it is shaped to, or else guaranteed.
    pub fn capacity(&self, class: &Settings) -> Option<Rate> {
        self.words_of(Role::Shape).find_map(|word| class.rate(word)).or_else(|| (self.guarantee)(class))
    }

    /// By which rate a scheduler inside a class of these words measures shares: what the class is
    /// shaped to, or else guaranteed; `None` where that is nothing, and the rate counts by which
    /// the class is measured itself.
    pub fn rate_inside(&self, class: &Settings) -> Option<Rate> {
        self.capacity(class).filter(|rate| !rate.is_zero())
    }
}

/// A rate that is written, or the last of a curve.
fn rate(settings: &Settings, word: &str) -> Option<Rate> {
    match settings.get(word)? {
        Value::Rate(rate) => Some(rate),
        Value::Curve(curve) => Some(curve.then),
        _ => None,
    }
}
