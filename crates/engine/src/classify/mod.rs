//! Finds the class of a packet: by rules, and by an exact-match cache of flows in front of them.
//!
//! A packet's key is packed, with all bits cleared that no rule looks at (`fields`), and looked up
//! in the cache (`cache`). On a miss the rules classify the packet (`matcher`), and the cache keeps
//! the answer. So the answer is always that of the rules, and a hit costs the same however many
//! rules there are.

mod cache;
mod fields;
mod hash;
mod matcher;
mod rule;
mod shapes;
#[cfg(test)]
mod tests;

pub use hash::{FlowHash, Mix};
pub use rule::{Address, Field, Order, Rule, RuleSet, Term, Values};

use self::cache::{Table, class_of};
use self::fields::{NARROW, Used, WIDE};
use self::matcher::Matcher;
use crate::headers::Key;
use crate::spec::ClassId;

/// Keys that [`Classifier::classify_batch`] looks up at a time.
pub const BATCH: usize = 32;

/// The settings of the flow cache. They change what a lookup costs, never its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The most flows that are kept, rounded down to a power of two; below 4 none are. IPv4 and
    /// IPv6 flows are counted apart. An IPv4 flow has an entry of 32 bytes, an IPv6 flow one of 64;
    /// where rules look at the SPI and also at the VLAN or the interface, every entry takes 64.
    /// Memory is taken as flows come: four entries and more for each of up to 16,384 flows.
    pub flows: usize,
    /// Decides in which sets of the cache flows lie. For packets of strangers it should be secret:
    /// then nobody can choose flows that all fall into one set.
    pub seed: u64,
}

impl Default for CacheSettings {
    /// 262,144 flows (at most 8 MiB of IPv4 and 16 MiB of IPv6), seed 0.
    fn default() -> CacheSettings {
        CacheSettings { flows: 1 << 18, seed: 0 }
    }
}

/// How the rules classify a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its class; `None` if no rule matches and there is no default.
    pub class: Option<ClassId>,
    /// The rule that decided, as an index into [`RuleSet::rules`]; `None`: the default.
    pub rule: Option<usize>,
    /// Other rules that match but are tried later, in the order in which they are tried.
    pub shadowed: Vec<usize>,
}

/// Finds the class of a packet.
pub struct Classifier {
    default: Option<ClassId>,
    /// Classes that rules name, sorted.
    named: Vec<ClassId>,
    matcher: Matcher,
    used: Used,
    settings: CacheSettings,
    mix: Mix,
    narrow: Table<NARROW>,
    wide: Table<WIDE>,
    misses: u64,
}

impl Classifier {
    /// Prepares a rule set. `default` is the class of packets that no rule matches.
    pub fn new(rules: &RuleSet, default: Option<ClassId>) -> Classifier {
        Classifier::with(rules, default, CacheSettings::default())
    }

    /// [`new`](Classifier::new) with these settings of the cache.
    pub fn with(rules: &RuleSet, default: Option<ClassId>, settings: CacheSettings) -> Classifier {
        let mut named: Vec<ClassId> = rules.rules.iter().map(|rule| rule.class).collect();
        named.sort_unstable();
        named.dedup();
        Classifier {
            default,
            named,
            matcher: Matcher::new(rules),
            used: Used::new(rules),
            settings,
            mix: Mix::new(settings.seed),
            narrow: Table::new(settings.flows),
            wide: Table::new(settings.flows),
            misses: 0,
        }
    }

    /// The settings of the cache.
    pub fn settings(&self) -> CacheSettings {
        self.settings
    }

    /// Replaces the cache with an empty one of these settings.
    pub fn set_cache(&mut self, settings: CacheSettings) {
        self.settings = settings;
        self.mix = Mix::new(settings.seed);
        self.narrow = Table::new(settings.flows);
        self.wide = Table::new(settings.flows);
    }

    /// Where there are no rules, the class of all packets: the default, if there is one. `None`:
    /// rules look at each packet.
    #[inline]
    pub fn without_rules(&self) -> Option<Option<ClassId>> {
        self.matcher.is_empty().then_some(self.default)
    }

    /// The class of a packet; `None` if no rule matches and there is no default.
    #[inline]
    pub fn classify(&mut self, key: &Key) -> Option<ClassId> {
        if self.matcher.is_empty() { self.default } else { self.ask_cache(key) }
    }

    #[inline]
    fn ask_cache(&mut self, key: &Key) -> Option<ClassId> {
        if self.used.is_narrow(key) {
            let words = self.used.narrow(key);
            let hash = self.mix.hash(&words);
            match self.narrow.get(&words, hash) {
                0 => self.miss_narrow(key, &words, hash),
                kept => class_of(kept),
            }
        } else {
            self.classify_wide(key)
        }
    }

    fn classify_wide(&mut self, key: &Key) -> Option<ClassId> {
        let words = self.used.wide(key);
        let hash = self.mix.hash(&words);
        let kept = self.wide.get(&words, hash);
        if kept != 0 {
            return class_of(kept);
        }
        let class = self.ask_rules(key);
        self.wide.put(&words, hash, class);
        class
    }

    #[cold]
    fn miss_narrow(&mut self, key: &Key, words: &[u64; NARROW], hash: u64) -> Option<ClassId> {
        let class = self.ask_rules(key);
        self.narrow.put(words, hash, class);
        class
    }

    fn ask_rules(&mut self, key: &Key) -> Option<ClassId> {
        self.misses += 1;
        self.matcher.first(key).map(|(_, class)| class).or(self.default)
    }

    /// [`classify`](Classifier::classify) for several packets: adds one class for each key to
    /// `classes`, in order. The answers are the same; where the cache is large, the entries of up
    /// to [`BATCH`] keys are fetched from memory at the same time.
    pub fn classify_batch(&mut self, keys: &[Key], classes: &mut Vec<Option<ClassId>>) {
        if self.matcher.is_empty() {
            classes.extend(keys.iter().map(|_| self.default));
            return;
        }
        if self.narrow.is_near() {
            // What is near comes as soon as it is asked for: packing all keys first only costs.
            classes.extend(keys.iter().map(|key| self.ask_cache(key)));
            return;
        }
        let mut packed = [([0; NARROW], 0); BATCH];
        for keys in keys.chunks(BATCH) {
            for (key, (words, hash)) in keys.iter().zip(&mut packed) {
                *words = self.used.narrow(key);
                *hash = self.mix.hash(words);
                self.narrow.fetch(*hash);
            }
            classes.extend(keys.iter().zip(&packed).map(|(key, (words, hash))| {
                if !self.used.is_narrow(key) {
                    return self.classify_wide(key);
                }
                match self.narrow.get(words, *hash) {
                    0 => self.miss_narrow(key, words, *hash),
                    kept => class_of(kept),
                }
            }));
        }
    }

    /// How the rules classify a packet, and why. Tries every rule, without the cache.
    pub fn explain(&self, key: &Key) -> Explanation {
        let mut matching = self.matcher.all(key);
        let first = matching.next();
        Explanation {
            class: first.map(|(_, class)| class).or(self.default),
            rule: first.map(|(rule, _)| rule),
            shadowed: matching.map(|(rule, _)| rule).collect(),
        }
    }

    /// The rule that decides about a packet, as in [`explain`](Classifier::explain), without
    /// looking for others that match.
    pub fn rule(&self, key: &Key) -> Option<usize> {
        self.matcher.first(key).map(|(rule, _)| rule)
    }

    /// True if a rule names the class.
    pub fn leads_to(&self, class: ClassId) -> bool {
        self.named.binary_search(&class).is_ok()
    }

    /// Cache misses so far: packets that the rules classified.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Bytes of memory held: rules and cache.
    pub fn memory(&self) -> usize {
        self.named.capacity() * 4 + self.matcher.memory() + self.narrow.memory() + self.wide.memory()
    }
}
