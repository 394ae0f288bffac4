//! The rules that hand packets to altq, and the queue of the kernel behind them.

use super::{Looked, START_AGAIN, Steered};
use crate::drift::queue;
use crate::nfqueue::edge::{COPY, QUEUES_TABLE};
use crate::nfqueue::steer::{self, Firewall};
use crate::sys::table::Table;

/// The most lines that are named where rules differ.
const NAMED: usize = 10;

/// Looks at the rules and the queue.
pub fn look(steered: &Steered, looked: &mut Looked) {
    let Steered { steer, firewall, .. } = steered;
    let (name, ingress) = (steer.interface.as_str(), steer.ingress);
    let what = if ingress { format!("what comes in at {name}") } else { format!("what leaves by {name}") };
    listens(steered, &what, &Table::open(QUEUES_TABLE).read(), looked);
    let ruleset = match steer::read(*firewall) {
        Ok(ruleset) => ruleset,
        Err(why) => return looked.unchecked.push(("rules", format!("the rules cannot be listed: {why}"))),
    };
    let expected = match steer::expected(steer, *firewall) {
        Ok(expected) => expected,
        Err(why) => {
            return looked.unchecked.push(("rules", format!("there is nothing to compare the rules with: {why}")));
        }
    };
    match ruleset.of(name, ingress) {
        Some((found, by)) => {
            compare(&what, *firewall, &expected, &found, looked);
            for line in ruleset.in_front(name, ingress, by) {
                let said = ["no queue before altq's".to_owned(), line];
                looked.differs("rules", &what, said, "take that rule away, or put it behind altq's");
            }
        }
        None => {
            let said = [format!("rules that hand it to queue {}", steer.queue), "none: it passes unshaped".to_owned()];
            looked.differs("rules", &what, said, START_AGAIN);
        }
    }
    for line in steer::bypasses(name) {
        let said = ["nothing that carries packets past the rules".to_owned(), line];
        looked.differs("rules", &what, said, "switch flow offloading off");
    }
}

/// Compares rules as a firewall's program lists them.
pub fn compare(what: &str, by: Firewall, expected: &[String], found: &[String], looked: &mut Looked) {
    if expected == found {
        return;
    }
    let beyond = |list: &[String], than: &[String]| -> Vec<String> {
        list.iter().filter(|line| !than.contains(line)).map(|line| line.trim().to_owned()).collect()
    };
    let (missing, more) = (beyond(expected, found), beyond(found, expected));
    if missing.is_empty() && more.is_empty() {
        let other = "the same in another order, or one of them twice";
        return looked.differs("rules", what, ["the rules in altq's order".to_owned(), other.to_owned()], START_AGAIN);
    }
    let count = missing.len().max(more.len());
    for at in 0..count.min(NAMED) {
        let (missing, more) = (missing.get(at), more.get(at));
        let quoted = |line: Option<&String>| line.map_or_else(|| "no such rule".to_owned(), |line| format!("`{line}`"));
        let remedy = match by {
            Firewall::Nft => START_AGAIN.to_owned(),
            Firewall::Iptables => {
                let (away, back) = (more.map(|line| command(line, "-D")), missing.map(|line| command(line, "-A")));
                let commands: Vec<String> = [away, back].into_iter().flatten().flatten().collect();
                if commands.is_empty() { START_AGAIN.to_owned() } else { commands.join(" && ") }
            }
        };
        looked.differs("rules", what, [quoted(missing), quoted(more)], remedy);
    }
    if count > NAMED {
        let said = [format!("{} more rules", missing.len().max(NAMED) - NAMED), "others".to_owned()];
        looked.differs("rules", what, said, START_AGAIN);
    }
}

/// The command of iptables that adds or deletes a rule, of the line that lists it.
fn command(line: &str, does: &str) -> Option<String> {
    let (program, rule) = match line.strip_prefix("ip6tables ") {
        Some(rule) => ("ip6tables", rule),
        None => ("iptables", line),
    };
    let rule = rule.strip_prefix("-A ")?;
    Some(format!("{program} -w -t mangle {does} {rule}"))
}

/// Whether altq listens at its queue, and gets what it asked for.
pub fn listens(steered: &Steered, what: &str, table: &str, looked: &mut Looked) {
    let number = steered.steer.queue;
    let place = format!("queue {number}, for {what}");
    let Some(found) = queue(table, number) else {
        let said = ["altq listens there".to_owned(), "nobody does".to_owned()];
        return looked.differs("queue", place, said, START_AGAIN);
    };
    if steered.owner != 0 && found.owner != u64::from(steered.owner) {
        let said = [format!("the socket {} of altq listens there", steered.owner), format!("{} does", found.owner)];
        looked.differs("queue", place.clone(), said, START_AGAIN);
    }
    if found.copied != u64::from(COPY) {
        let said = [format!("{COPY} bytes of each packet are copied"), format!("{} are", found.copied)];
        looked.differs("queue", place, said, START_AGAIN);
    }
}
