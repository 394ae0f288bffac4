//! Compares rules as the firewalls' programs list them, before and now.

/// The number of the queue to which rules hand packets, as printed by nft (`queue num 7 bypass`,
/// `queue flags bypass to 7`) and iptables (`--queue-num 7`).
pub fn queue_of(lines: &[String]) -> Option<u16> {
    lines.iter().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "queue" && *word != "--queue-num");
        words.next()?;
        words.find_map(|word| word.parse().ok())
    })
}

/// True if the rules are for a port of a bridge.
pub fn of_port(lines: &[String]) -> bool {
    lines.iter().any(|line| line.starts_with("table bridge ") || line.contains("--physdev-"))
}

/// Names the first line that is missing or new, or says that the order has changed. `None` if all
/// lines are as before.
pub fn difference(before: &[String], now: &[String]) -> Option<String> {
    if before == now {
        return None;
    }
    if let Some(line) = before.iter().find(|line| !now.contains(line)) {
        return Some(format!("`{}` is missing", line.trim()));
    }
    match now.iter().find(|line| !before.contains(line)) {
        Some(line) => Some(format!("`{}` is new", line.trim())),
        None => Some("they stand in another order".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn queues_are_found_in_both_firewalls_words() {
        for text in [
            "\tchain hold {\n\t\toifname \"a\" queue num 24000 bypass",
            "oifname \"a\" queue flags bypass to 24000",
            "oifname \"a\" queue to 24000",
            "-A FORWARD -o a -j altq-out-a\n-A altq-out-a -j NFQUEUE --queue-num 24000 --queue-bypass",
        ] {
            assert_eq!(queue_of(&lines(text)), Some(24000), "{text}");
        }
        assert_eq!(queue_of(&lines("-N altq-out-a")), None);
    }

    #[test]
    fn the_first_difference_is_said() {
        let before = lines("a\n b\nc");
        assert_eq!(difference(&before, &before), None);
        for (now, said) in
            [("a\nc", "`b` is missing"), ("a\n b\nc\nd", "`d` is new"), ("c\na\n b", "they stand in another order")]
        {
            assert_eq!(difference(&before, &lines(now)).as_deref(), Some(said));
        }
    }
}
