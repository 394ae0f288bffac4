//! An error in the text of a case: where, and what.

use std::ops::Range;

use altq_config::suggest::nearest;
use toml::Spanned;

/// A piece of the case's text; `None`: the case as a whole.
pub type Stretch = Option<Range<usize>>;

/// A value that was read, or the place of an error and its message.
pub type Result<T> = std::result::Result<T, (Stretch, String)>;

/// An error about a value, at its place.
pub fn bad<T, U>(at: &Spanned<T>, message: impl Into<String>) -> Result<U> {
    Err((Some(at.span()), message.into()))
}

/// The end of a message about a word that is not known: `; did you mean "X"?`, or nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

/// Words of other tools, and what a case calls the same thing.
const ELSEWHERE: [(&str, &str); 11] = [
    ("tcp", "tcp_bulk"),
    ("tcp_stream", "tcp_bulk"),
    ("icmp", "ping"),
    ("cbr", "constant"),
    ("throughput", "goodput"),
    ("bandwidth", "rate"),
    ("bitrate", "rate"),
    ("latency", "delay_p50"),
    ("delay", "delay_p50"),
    ("rtt", "rtt_p50"),
    ("lost", "loss"),
];

/// The message about a word that is none of those known in its place: what it is said to be, the
/// known word that was meant, if one is like it, and all of them under their `heading`.
pub fn unknown<'a>(
    what: &str,
    word: &str,
    heading: &str,
    known: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
) -> String {
    let known = known.into_iter();
    let same = ELSEWHERE.iter().find(|(other, _)| *other == word).map(|(_, meant)| *meant);
    let meant =
        same.and_then(|meant| known.clone().find(|known| *known == meant)).or_else(|| nearest(word, known.clone()));
    let hint = meant.map_or(".".into(), |meant| format!("; did you mean {meant:?}?"));
    let all: Vec<&str> = known.collect();
    format!("{what}{hint} {heading}: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_what_was_meant_and_all_there_is() {
        let kinds = ["udp", "tcp_bulk"];
        let says = |word: &str| unknown(&format!("there is no kind {word:?}"), word, "Kinds", kinds);
        assert_eq!(says("tcp_bulc"), "there is no kind \"tcp_bulc\"; did you mean \"tcp_bulk\"? Kinds: udp, tcp_bulk");
        assert_eq!(says("tcp"), "there is no kind \"tcp\"; did you mean \"tcp_bulk\"? Kinds: udp, tcp_bulk");
        assert_eq!(says("wood"), "there is no kind \"wood\". Kinds: udp, tcp_bulk");
        // A word of another place is not offered here.
        assert_eq!(says("throughput"), "there is no kind \"throughput\". Kinds: udp, tcp_bulk");
    }

    #[test]
    fn every_word_offered_for_one_of_another_tool_exists() {
        let measures = super::super::measure::Measure::ALL.map(|(name, _)| name);
        for (other, meant) in ELSEWHERE {
            let kind = ["ping", "tcp_bulk", "constant"].contains(&meant);
            assert!(kind || measures.contains(&meant), "{other}: {meant}");
            assert!(!measures.contains(&other), "{other} is a measure itself");
        }
    }
}
