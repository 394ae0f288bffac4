//! `altq top`: shows what the classes of a running altq do, with their flows (docs/top.md); or the
//! traffic of an interface that nobody shapes, or of a capture.

#[cfg(feature = "experiments")]
mod file;
#[cfg(feature = "top")]
mod screen;
mod seen;
mod source;

use std::io::IsTerminal;
use std::path::PathBuf;

#[cfg(feature = "experiments")]
use altq_config::Language;
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::document::Top;
use altq_monitor::fold::{By, WORDS};
use altq_monitor::tree::TreeError;

use crate::clock;
use crate::exit::Exit;
use crate::socket::Socket;

/// Options of `altq top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// This link only [default: all links]
    #[arg(long, value_name = "NAME")]
    pub link: Option<String>,
    /// Prints the present figures, and ends
    #[arg(long)]
    pub once: bool,
    /// Prints JSON, one line each second (altq.top/1; altq.watch/1 if nobody shapes)
    #[arg(long)]
    pub json: bool,
    /// Shows an earlier time from the history, such as -90s, -10m or -2h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = ago)]
    pub at: Option<Nanos>,
    /// The window of the figures, in seconds: 1, 10 or 60
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = window)]
    pub window: u32,
    /// The class whose flows are shown [default: the link]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub class: Option<String>,
    /// Shows flows by what they have in common: host or prefix that sends, to-host or to-prefix
    /// that receives, port, or dscp [default: each flow by itself]
    #[arg(long, value_name = "WHAT", value_parser = by, conflicts_with_all = ["at", "interface"])]
    pub by: Option<By>,
    #[cfg(feature = "top")]
    /// The column by which classes are sorted
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "policy", conflicts_with = "interface")]
    pub sort: Column,
    #[cfg(feature = "top")]
    /// Shows only classes whose names have this text, and those above them
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "interface")]
    pub filter: String,
    #[cfg(feature = "top")]
    /// Draws with ASCII characters only [default: unless the locale is UTF-8]
    #[arg(long)]
    pub ascii: bool,
    #[cfg(feature = "top")]
    /// Draws without colours; also set by NO_COLOR in the environment
    #[arg(long)]
    pub no_color: bool,
    /// Watches an interface, shaped or not: its largest protocols and hosts
    #[arg(long, value_name = "NAME", conflicts_with_all = ["at", "class", "link", "file", "remote", "socket"])]
    pub interface: Option<String>,
    /// Shows the packets of a capture (pcap or pcapng) as if they came now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["at", "remote", "socket"])]
    pub file: Option<PathBuf>,
    #[cfg(feature = "experiments")]
    /// With --file: sorts the packets into the classes of this policy
    #[arg(long, value_name = "POLICY", requires = "file")]
    pub policy: Option<PathBuf>,
    #[cfg(feature = "experiments")]
    /// The policy's language: native or altq [default: by the file's name]
    #[arg(long, requires = "policy")]
    pub language: Option<Language>,
    #[cfg(feature = "experiments")]
    /// With --file: how many times faster than the packets came
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed, requires = "file")]
    pub speed: f64,
    /// Shows the figures of `altq top` on this host, by ssh
    #[arg(long, value_name = "HOST", value_parser = host, conflicts_with = "socket")]
    pub remote: Option<String>,
    #[command(flatten)]
    pub socket: Socket,
    /// With --json: the first document also has what each class got in each second of the last
    /// minute
    #[arg(long, hide = true)]
    pub lines: bool,
}

/// What classes are sorted by.
#[cfg(feature = "top")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Column {
    Policy,
    Name,
    Ask,
    Got,
    Borrowed,
    Lent,
    P50,
    P99,
    Drops,
    Backlog,
}

fn window(word: &str) -> Result<u32, String> {
    match word.strip_suffix('s').unwrap_or(word) {
        "1" => Ok(1),
        "10" => Ok(10),
        "60" => Ok(60),
        _ => Err("1, 10 or 60".to_owned()),
    }
}

/// A time ago: `-10m`, also without the sign.
fn ago(word: &str) -> Result<Nanos, String> {
    match clock::span(word.strip_prefix('-').unwrap_or(word)) {
        Some(seconds @ 1..=86_400) => Ok(seconds * SECOND),
        Some(_) => Err("1s to 24h ago".to_owned()),
        None => Err("a time ago, such as -90s, -10m or -2h".to_owned()),
    }
}

/// What flows are folded by.
fn by(word: &str) -> Result<By, String> {
    By::of_word(word).ok_or_else(|| format!("one of {}", WORDS.map(|(word, _)| word).join(", ")))
}

/// Checks the name of a class, because it is passed to another host's shell.
fn name(word: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    match !word.is_empty() && word.chars().all(good) {
        true => Ok(word.to_owned()),
        false => Err("a name has letters, digits, `_`, `.` and `-`".to_owned()),
    }
}

fn host(word: &str) -> Result<String, String> {
    match word.is_empty() || word.starts_with('-') || word.contains(char::is_whitespace) {
        true => Err("a host as of ssh, such as admin@gateway".to_owned()),
        false => Ok(word.to_owned()),
    }
}

#[cfg(feature = "experiments")]
fn speed(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(speed) if (0.01..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("0.01 to 10000".to_owned()),
    }
}

/// How figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// JSON, once or a line a second.
    Json,
    /// A table, once or again and again.
    Table,
    /// A screen with keys.
    Screen,
}

impl Args {
    fn form(&self) -> Form {
        match (self.json, self.once || !std::io::stdout().is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Table,
            (false, false) => Form::Screen,
        }
    }

    /// The first option that was given and is about classes.
    #[cfg(feature = "experiments")]
    fn of_classes(&self) -> Option<&'static str> {
        let asked = [("--link", self.link.is_some()), ("--class", self.class.is_some()), ("--by", self.by.is_some())];
        asked.into_iter().chain(self.choices()).find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// The options that say which classes are shown, in which order, and whether each was given.
    #[cfg(feature = "top")]
    fn choices(&self) -> [(&'static str, bool); 2] {
        [("--sort", self.sort != Column::Policy), ("--filter", !self.filter.is_empty())]
    }

    #[cfg(not(feature = "top"))]
    fn choices(&self) -> [(&'static str, bool); 0] {
        []
    }

    /// Whether classes are left out or sorted.
    fn chooses(&self) -> bool {
        self.choices().iter().any(|(_, given)| *given)
    }

    /// Whether figures are shown only once. Figures of the past do not change, so these are.
    fn is_once(&self) -> bool {
        self.once || self.at.is_some() && self.form() != Form::Screen
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if cfg!(not(feature = "top")) && args.form() != Form::Json {
        eprintln!(
            "altq top: this altq is built without tables and screens; `--json` is there, and `altq top --remote` on \
             another host draws what this one says"
        );
        return Ok(Exit::Unsupported);
    }
    if let Some(interface) = &args.interface {
        return seen::interface(args, interface);
    }
    if let Some(path) = &args.file {
        return file(args, path);
    }
    match &args.remote {
        Some(host) => source::remote(args, host),
        None => {
            crate::aside::stand_aside("altq top");
            source::socket(args)
        }
    }
}

/// A document with the classes that a table shows, in its order.
#[cfg(feature = "top")]
fn chosen(args: &Args, document: Top) -> Result<Top, TreeError> {
    screen::chosen(args, document)
}

#[cfg(not(feature = "top"))]
fn chosen(_: &Args, document: Top) -> Result<Top, TreeError> {
    Ok(document)
}

#[cfg(feature = "experiments")]
fn file(args: &Args, path: &std::path::Path) -> anyhow::Result<Exit> {
    file::run(args, path)
}

#[cfg(not(feature = "experiments"))]
fn file(_: &Args, _: &std::path::Path) -> anyhow::Result<Exit> {
    eprintln!("altq top: this altq is built without captures; --file needs one with all features");
    Ok(Exit::Unsupported)
}

/// The JSON Schema of `altq.watch/1`.
#[cfg(test)]
pub fn schema(generator: &schemars::generate::SchemaGenerator) -> schemars::Schema {
    generator.clone().into_root_schema_for::<seen::Document>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ago_are_read() {
        let read = ["-10m", "10m", "-90s", "-2h", "-5min"].map(|word| ago(word).unwrap() / SECOND);
        assert_eq!(read, [600, 600, 90, 7200, 300]);
        for word in ["10", "-", "m", "-0s", "25h", "-1.5m", "99999999999999999999s", "10x", ""] {
            assert!(ago(word).is_err(), "{word}");
        }
    }

    #[test]
    fn what_goes_to_a_shell_is_harmless() {
        assert!(name("web-1.a_b").is_ok() && name("a b").is_err() && name("$(id)").is_err() && name("").is_err());
        assert!(by("to-host").is_ok() && by("colour").is_err_and(|why| why.contains("prefix, to-prefix, port, dscp")));
        assert!(host("admin@gw").is_ok() && host("-oProxyCommand=x").is_err() && host("a b").is_err());
    }
}
