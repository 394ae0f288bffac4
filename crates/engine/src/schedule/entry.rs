//! What the registry knows of a scheduler. All other code asks here, and names no scheduler.

use super::Build;
use super::check::{Finding, View};
use super::promise::{self, Bounds, Kept, LongRun, Promised};
use crate::settings::{Limit, Settings, Value, Word};
use crate::spec::{ClassId, LinkSpec, QueueSpec};
use crate::units::Rate;

/// What the registry knows of a scheduler. Parsers, checks, promises, printers, benchmarks and docs
/// read it from here.
///
/// [`Entry::new`] fills in defaults; an entry states what differs from them:
///
/// ```text
/// pub const ENTRY: Entry = Entry { class_words: &[…], promises, ..Entry::new("drr", "in turn", build) };
/// ```
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in policies.
    pub name: &'static str,
    /// What it does, in one line of help.
    pub about: &'static str,
    /// The scheduler's own words.
    pub words: &'static [Word],
    /// Words of a class that it serves.
    pub class_words: &'static [Word],
    /// The meaning of some of the class's words, for code that does not know the scheduler.
    pub roles: &'static [(&'static str, Role)],
    /// Words of other schedulers or tools for the same thing, and what to write here instead.
    pub foreign: &'static [(&'static str, &'static str)],
    /// The scheduler's word that selects a variant, if it has one. Summaries show it even where it
    /// is not written.
    pub variant: Option<&'static str>,
    /// True if none of its classes may be the parent of another: the engine refuses that.
    pub side_by_side: bool,
    /// True if packets leave in the order of their arrival, whatever their class.
    pub in_order: bool,
    /// In which order it serves classes, as text for people.
    pub order: Order,
    /// Whether the order in which classes were made decides between equal ones, by the scheduler's
    /// own words.
    pub order_of_making: fn(&Settings) -> bool,
    /// By its own words: without a device and the word `regulator` nothing stands between it and
    /// the wire, as where it was published.
    pub unregulated: fn(&Settings) -> bool,
    /// The queue of a class that names none, from the words of the scheduler and of the class.
    pub queue: fn(&Settings, &Settings) -> QueueSpec,
    /// A word of a class that stands for a queue.
    pub queue_word: Option<QueueWord>,
    /// The rate that a class is guaranteed by its words, if the scheduler guarantees any.
    pub guarantee: fn(&Settings) -> Option<Rate>,
    /// True if its own [`check`](Entry::check) compares the guarantees of classes with what their
    /// parent has. Otherwise the general check does: their rates may not add up to more than the
    /// parent's.
    pub adds_up_itself: bool,
    /// What the classes of a place are promised: rates and latencies.
    pub promises: Promised,
    /// What the classes of a place have while all of them have packets, where that may be below
    /// their guarantees although the guarantees were accepted.
    pub long_run: Option<LongRun>,
    /// Why no class has a delay bound, by the scheduler's own words; `None` where they may have
    /// one.
    pub no_bound: fn(&Settings) -> Option<&'static str>,
    /// Delay bounds of its classes, where the scheduler is the link's own and knows tighter ones
    /// than follow from its promises.
    pub bounds: Option<Bounds>,
    /// The same bounds for a link of which classes come and go; `None` where its classes have none.
    pub kept_bounds: fn(&LinkSpec) -> Option<Box<dyn Kept>>,
    /// The words of a class that holds a reservation. `None` if the scheduler takes none.
    pub reservation: Option<ReservedWords>,
    /// What a class may send at once within its guarantee, in bytes on the wire.
    pub burst: fn(&LinkSpec, &Settings) -> u64,
    /// Whether a class of these words drops what arrives too fast, of whichever class inside it.
    pub polices: fn(&Settings) -> bool,
    /// How it serves packets of the class that holds it.
    pub own_packets: OwnPackets,
    /// Checks of its classes, beyond what [`Scheduler`](super::Scheduler) refuses.
    pub check: fn(&View<'_>, &mut Vec<Finding>),
    /// Whom a class goes before, from the words of the scheduler and of the class: a rank, the
    /// least first. `None` where no class goes before another.
    pub rank: fn(&Settings, &Settings) -> Option<Rank>,
    /// What `altq check` says beside some of its classes: which words should be other ones, and
    /// what happens with those that the class has.
    pub notes: fn(&View<'_>) -> Vec<(ClassId, String)>,
    /// What `tc -s` prints for it and its classes.
    pub tc: TcForm,
    /// What `altqstat` prints for it and its classes.
    pub altqstat: AltqstatForm,
    /// Makes one.
    pub build: Build,
}

/// What a word of a class means, for code that does not know the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A rate that the class is guaranteed.
    Guarantee,
    /// A guaranteed rate up to which the class is served before others.
    Urgent,
    /// A curve by which the class is served while it has packets, whatever other classes demand.
    Deadline,
    /// A curve by which the class shares in what guarantees leave over.
    Share,
    /// The class's weight against other classes.
    Weight,
    /// The class's priority: which class goes first.
    Priority,
    /// The most that the class may have: a rate, or a curve of which the last rate counts.
    Ceiling,
    /// The most that the class may have. Where the word is not written, that is its guarantee.
    CeilingOrGuarantee,
    /// A rate to which the class is shaped, and by which a scheduler inside it measures shares.
    Shape,
    /// A flag that lets the class have more than its guarantee.
    Borrow,
}

/// Whom a class goes before. The least rank goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// With all its packets.
    Always(u64),
    /// With what it sends beyond its guarantee.
    Beyond(u64),
}

impl Rank {
    /// The number.
    pub const fn number(self) -> u64 {
        let (Rank::Always(number) | Rank::Beyond(number)) = self;
        number
    }
}

/// In which order a scheduler serves classes, as text for people.
#[derive(Clone, Copy)]
pub enum Order {
    /// The scheduler's name says it.
    Name,
    /// This text says it.
    Said(&'static str),
    /// By [`Role::Priority`] within guarantee, the highest number first; then as the text says that
    /// the function makes from the scheduler's own words.
    Priority(fn(&Settings) -> &'static str),
}

/// The words of a class that holds a reservation; or why it can hold none, in half a sentence.
pub type ReservedWords = fn(&Reserved<'_>) -> Result<Settings, String>;

/// What a reservation needs of the class that is made for it.
#[derive(Clone, Copy, Debug)]
pub struct Reserved<'s> {
    /// The words of the class below which it is made.
    pub parent: &'s Settings,
    /// What it is guaranteed, as the link charges it.
    pub rate: Rate,
    /// What it may send at once within its guarantee, in bytes on the wire.
    pub burst: u64,
    /// Its largest packet, in bytes at layer 3.
    pub packet: u32,
    /// Whether it may use what others leave.
    pub borrows: bool,
}

/// How a scheduler serves packets that go to the class that holds it, and to none of its own
/// classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPackets {
    /// Unknown: where there are such packets, no class is promised anything.
    Unknown,
    /// As those of a class without words.
    Plain,
    /// As those of a class that is guaranteed what the others leave of the rate.
    Rest,
}

/// A word of a class that stands for a queue. When a policy has been read, the word is replaced by
/// that queue.
#[derive(Clone, Copy)]
pub struct QueueWord {
    /// The word.
    pub word: &'static str,
    /// The queue, from the words of the scheduler and of the class, the rate by which shares are
    /// measured and the link's MTU; `None` where the word says nothing.
    pub queue: fn(&Settings, &Settings, Rate, u32) -> Option<QueueSpec>,
}

/// What `tc -s` prints for a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcForm {
    /// The words of scheduler and class, and their counters.
    Words,
    /// The words of a class that are written, under tc's names for them.
    Renamed(&'static [(&'static str, &'static str)]),
    /// Rate and ceil with a bucket of tokens each (tc-htb(8)).
    Tokens,
}

/// What `altqstat` prints for a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AltqstatForm {
    /// A list of queues, the ten with the highest rates.
    Queues,
    /// Each class with its place in the tree and its idle time.
    Tree,
    /// Each class with its service curves.
    Curves,
    /// Each class with its priority.
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
            unregulated: |_| false,
            queue: |_, _| QueueSpec::plain(Limit::Packets(50)),
            queue_word: None,
            guarantee: |_| None,
            adds_up_itself: false,
            promises: |place| promise::none(place, "its scheduler promises nothing"),
            long_run: None,
            no_bound: |_| None,
            bounds: None,
            kept_bounds: |_| None,
            reservation: None,
            burst: |link, _| u64::from(link.overhead.charge(link.mtu)),
            polices: |_| false,
            own_packets: OwnPackets::Unknown,
            check: |_, _| {},
            rank: |_, _| None,
            notes: |_| Vec::new(),
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

    /// A class's [`Role::Priority`]: as written, or the word's default. `None` where the scheduler
    /// has no word of that role.
    pub fn priority(&self, class: &Settings) -> Option<u64> {
        let word = self.class_words.iter().find(|word| Some(word.name) == self.word_of(Role::Priority))?;
        class.int(word.name).or_else(|| word.default.parse().ok())
    }

    /// The most that a class may have by its words in the long run, if they say so; and the word
    /// that says it. Where the guarantee is the most, because another word is not written, that is
    /// the other word.
    pub fn ceiling(&self, class: &Settings) -> Option<(Rate, &'static str)> {
        let guarantee = || (self.guarantee)(class).unwrap_or_default();
        let one = |(word, role): &(&'static str, Role)| {
            let most = match role {
                Role::Ceiling | Role::Shape => rate(class, word)?,
                Role::CeilingOrGuarantee => rate(class, word).unwrap_or_else(guarantee),
                Role::Borrow if !class.flag(word) => guarantee(),
                _ => return None,
            };
            Some((most, *word))
        };
        self.roles.iter().filter_map(one).min_by_key(|(most, _)| *most)
    }

    /// The most that a class has in the long run that is served by deadline only: the last rate of
    /// its curve, because what others leave goes to classes that have a share.
    pub fn by_deadline_only(&self, class: &Settings) -> Option<(Rate, &'static str)> {
        if self.words_of(Role::Share).any(|word| rate(class, word).is_some_and(|share| !share.is_zero())) {
            return None;
        }
        self.words_of(Role::Deadline).find_map(|word| Some((rate(class, word)?, word)))
    }

    /// The rate that the classes below a class share: the one to which it is shaped, or else its
    /// guarantee.
    pub fn capacity(&self, class: &Settings) -> Option<Rate> {
        self.words_of(Role::Shape).find_map(|word| class.rate(word)).or_else(|| (self.guarantee)(class))
    }

    /// The rate by which a scheduler inside a class of these words measures shares: the
    /// [`capacity`](Entry::capacity). `None` where that is 0 or unknown; then the rate by which the
    /// class itself is measured counts.
    pub fn rate_inside(&self, class: &Settings) -> Option<Rate> {
        self.capacity(class).filter(|rate| !rate.is_zero())
    }
}

/// The value of a word: a rate, or the last rate of a curve.
fn rate(settings: &Settings, word: &str) -> Option<Rate> {
    match settings.get(word)? {
        Value::Rate(rate) => Some(rate),
        Value::Curve(curve) => Some(curve.then),
        _ => None,
    }
}
