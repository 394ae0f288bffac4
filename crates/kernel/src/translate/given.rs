//! The words that were written for a scheduler, a class or a queue, and which of them have been
//! taken. What nobody took is a word that the kernel does not have.

use altq_engine::settings::{Settings, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::{Nanos, Rate};

/// Words that were written. Each method takes one.
pub struct Given<'a> {
    settings: &'a Settings,
    taken: Vec<&'static str>,
}

impl<'a> Given<'a> {
    /// None is taken yet.
    pub fn new(settings: &'a Settings) -> Given<'a> {
        Given { settings, taken: Vec::new() }
    }

    /// Takes words whatever their values: the caller has read them.
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

    /// A number of packets or bytes, a part of one, or a choice.
    pub fn any(&mut self, word: &'static str) -> Option<Value> {
        self.value(word)
    }

    /// The words that nobody took.
    pub fn rest(self) -> Vec<&'static str> {
        self.settings.iter().map(|(word, _)| word).filter(|word| !self.taken.contains(word)).collect()
    }
}
