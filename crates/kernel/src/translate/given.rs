//! The words that a policy has for a scheduler, a class or a queue, and which of them the
//! translation has taken. The words that are left are those that the kernel does not have.

use altq_engine::settings::{Settings, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::{Nanos, Rate};

/// The words of a scheduler, a class or a queue. Each method takes one.
pub struct Given<'a> {
    settings: &'a Settings,
    taken: Vec<&'static str>,
}

impl<'a> Given<'a> {
    /// These words; none is taken yet.
    pub fn new(settings: &'a Settings) -> Given<'a> {
        Given { settings, taken: Vec::new() }
    }

    /// Takes words whose values the caller has read itself.
    pub fn take(&mut self, words: &[&'static str]) {
        self.taken.extend_from_slice(words);
    }

    fn value(&mut self, word: &'static str) -> Option<Value> {
        self.taken.push(word);
        self.settings.get(word)
    }

    /// A flag.
    pub fn flag(&mut self, word: &'static str) -> bool {
        matches!(self.value(word), Some(Value::Flag))
    }

    /// A rate.
    pub fn rate(&mut self, word: &'static str) -> Option<Rate> {
        self.taken.push(word);
        self.settings.rate(word)
    }

    /// A curve.
    pub fn curve(&mut self, word: &'static str) -> Option<ServiceCurve> {
        self.taken.push(word);
        self.settings.curve(word)
    }

    /// A number.
    pub fn int(&mut self, word: &'static str) -> Option<u64> {
        self.taken.push(word);
        self.settings.int(word)
    }

    /// Bytes.
    pub fn bytes(&mut self, word: &'static str) -> Option<u64> {
        self.taken.push(word);
        self.settings.bytes(word)
    }

    /// A time.
    pub fn time(&mut self, word: &'static str) -> Option<Nanos> {
        self.taken.push(word);
        self.settings.time(word)
    }

    /// A value of any kind.
    pub fn any(&mut self, word: &'static str) -> Option<Value> {
        self.value(word)
    }

    /// The words that were not taken.
    pub fn rest(self) -> Vec<&'static str> {
        self.settings.iter().map(|(word, _)| word).filter(|word| !self.taken.contains(word)).collect()
    }
}
