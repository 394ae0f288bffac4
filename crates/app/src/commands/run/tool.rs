//! Counters of a running link in the formats of other tools.

use std::sync::mpsc;
use std::time::Duration;

use altq_cases::stat::{LinkStat, Told, Whole};
use altq_config::Path;
use altq_control::document::Text;
use altq_control::{Code, Fault};
use altq_engine::Engine;
use clap::ValueEnum;

use super::live::{Live, Shown};
use crate::stat_format::Format;

/// How many classes are read at a time. The loop of the link sends and receives nothing meanwhile:
/// 256 classes take about a tenth of a millisecond.
const PART: usize = 256;
/// How long a loop may take to answer. It is woken, and answers between two packets.
const PATIENCE: Duration = Duration::from_secs(2);

/// The counters of these links in a format of `--stat`.
///
/// # Errors
/// There is no such format, or a loop does not answer.
pub fn text(format: &str, of: &[Shown], live: &Live) -> Result<Text, Fault> {
    let format = Format::from_str(format, false).map_err(|_| {
        let all = Format::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let all: Vec<String> = all.map(|value| value.get_name().to_owned()).collect();
        Fault::usage(format!("there is no format `{format}`")).help(format!("json, table, {}", all.join(", ")))
    })?;
    let mut made = Text { text: String::new(), legend: None };
    for shown in of {
        let stat = read(shown, live)?;
        if of.len() > 1 {
            // Formats of other tools do not name the link.
            made.text += &format!("# link {}\n", stat.name);
        }
        made.text += &format.text(&stat);
        if made.legend.is_none() {
            made.legend = format.legend(&stat);
        }
    }
    Ok(made)
}

/// Reads the counters of a link from its loop, in parts.
fn read((shaped, snapshot): &Shown, live: &Live) -> Result<LinkStat, Fault> {
    let link = &shaped.link;
    if link.path() == Some(Path::Kernel) {
        let message = format!("the kernel executes link `{}`, which has no counters in this format", link.name);
        return Err(Fault::new(Code::Unsupported, message).help("`tc -s class show` prints the kernel's own"));
    }
    let whole = ask(live, &link.name, Whole::of)?;
    let numbers: Vec<_> = whole.classes().collect();
    let mut told = Vec::with_capacity(numbers.len());
    for part in numbers.chunks(PART) {
        let part = part.to_vec();
        let look = move |engine: &Engine| part.iter().map(|class| Told::of(engine, *class)).collect::<Vec<_>>();
        told.extend(ask(live, &link.name, look)?);
    }
    let named = |class: &altq_config::Class| (!class.name.is_empty()).then(|| class.name.clone());
    let names: Vec<Option<String>> = link.classes.iter().map(named).collect();
    let settings: Vec<_> = link.spec.classes.iter().map(|class| class.settings.clone()).collect();
    let span = snapshot.at.saturating_sub(snapshot.began).max(1);
    Ok(LinkStat::gather(link, &names, &settings, link.spec.default, &whole, told, span))
}

/// Lets the loop of a link call a function with its engine, and returns the result.
fn ask<T: Send + 'static>(
    live: &Live,
    link: &str,
    look: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, Fault> {
    let (send, receive) = mpsc::channel();
    // The thread that asked may have given up.
    live.reach().look(link, Box::new(move |engine: &Engine| _ = send.send(look(engine))));
    receive
        .recv_timeout(PATIENCE)
        .map_err(|_| Fault::new(Code::Failed, format!("the loop of link `{link}` does not answer")))
}
