//! Gets documents of a running altq: by its control socket, or by ssh from another host.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use altq_control::client::Client;
use altq_control::{Code, Fault};
use altq_engine::units::SECOND;
use altq_monitor::document::Top;
use altq_monitor::fold::By;
use serde::{Deserialize, Serialize};

use super::{Args, Form, chosen};
use crate::exit::Exit;
use crate::output;
use crate::socket::fail;

/// Time between two documents.
const EACH: Duration = Duration::from_secs(1);
/// Time until altq is asked again if it has no new second yet.
const SOON: Duration = Duration::from_millis(50);
/// How long to wait for the first second of a run.
const FIRST: Duration = Duration::from_secs(4);

/// The fields of the request `top`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wanted {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    pub window_s: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_s: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ago_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
}

impl Wanted {
    fn of(args: &Args) -> Wanted {
        Wanted {
            link: args.link.clone(),
            window_s: args.window,
            class: args.class.clone(),
            flows: None,
            line_s: args.lines.then_some(60),
            ago_s: args.at.map(|ago| ago / SECOND),
            by: args.by.map(By::word),
        }
    }
}

/// The times of a document.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Times {
    links: Vec<Time>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Time {
    at_ns: u64,
}

/// Asks for a document. At the start of a run, waits for its first second.
fn ask(client: &mut Client, wanted: &Wanted) -> Result<String, Fault> {
    let end = Instant::now() + FIRST;
    loop {
        match client.ask("top", wanted) {
            Err(fault)
                if fault.code == Code::Failed
                    && fault.message.contains("nothing was counted yet")
                    && Instant::now() < end =>
            {
                std::thread::sleep(EACH / 5);
            }
            answer => return answer,
        }
    }
}

fn read(json: &str) -> Result<Top, Fault> {
    serde_json::from_str(json).map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Failed, format!("altq's answer cannot be read ({error})"))
}

/// A document as `--json` prints it: as it came, unless classes are left out or sorted.
fn printed<'j>(args: &Args, json: &'j str) -> Result<Cow<'j, str>, Fault> {
    if !args.chooses() {
        return Ok(Cow::Borrowed(json));
    }
    let document = chosen(args, read(json)?).map_err(unreadable)?;
    serde_json::to_string(&document).map(Cow::Owned).map_err(unreadable)
}

/// A word as the shell of another host reads it: one word, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Shows what the control socket answers.
pub fn socket(args: &Args) -> anyhow::Result<Exit> {
    let mut client = match args.socket.connect() {
        Ok(client) => client,
        Err(fault) => return Ok(fail("top", &fault)),
    };
    let mut wanted = Wanted::of(args);
    let first = match ask(&mut client, &wanted) {
        Ok(first) => first,
        Err(fault) => return Ok(fail("top", &fault)),
    };
    if args.form() == Form::Json {
        let mut json = first;
        let mut before: Option<Times> = None;
        let mut next = Instant::now();
        loop {
            let times = serde_json::from_str(&json).ok();
            let is_new = before.is_none() || times != before;
            if is_new {
                let line = match printed(args, &json) {
                    Ok(line) => line,
                    Err(fault) => return Ok(fail("top", &fault)),
                };
                // If the reader of the pipe has gone, it ends.
                if !output::line(&line)? {
                    return Ok(Exit::Ok);
                }
                before = times;
            }
            if args.is_once() {
                return Ok(Exit::Ok);
            }
            // However long answers take, no second is left out. If this one is not over there, it
            // will be soon.
            let now = Instant::now();
            next = if is_new { (next + EACH).max(now) } else { now + SOON };
            std::thread::sleep(next - now);
            wanted.line_s = args.lines.then_some(1);
            json = match ask(&mut client, &wanted) {
                Ok(json) => json,
                Err(fault) => return Ok(fail("top", &fault)),
            };
        }
    }
    let first = match read(&first) {
        Ok(first) => first,
        Err(fault) => return Ok(fail("top", &fault)),
    };
    local(args, client, wanted, first)
}

#[cfg(feature = "top")]
fn local(args: &Args, client: Client, wanted: Wanted, first: Top) -> anyhow::Result<Exit> {
    super::screen::local(args, client, wanted, first)
}

#[cfg(not(feature = "top"))]
fn local(_: &Args, _: Client, _: Wanted, _: Top) -> anyhow::Result<Exit> {
    Ok(Exit::Unsupported)
}

/// Asks again, on a connection that may be lost.
///
/// # Errors
/// What is wrong. The next call may succeed.
#[cfg(feature = "top")]
pub fn again(args: &Args, client: &mut Option<Client>, wanted: &Wanted) -> Result<Top, Fault> {
    let open = match client {
        Some(open) => open,
        None => client.insert(args.socket.connect()?),
    };
    let answer = open.ask("top", wanted);
    if answer.as_ref().is_err_and(|fault| fault.code == Code::Failed) {
        // Perhaps the worker at the other end has ended: the next call connects again.
        *client = None;
    }
    read(&answer?)
}

/// `altq top --json` on another host, by ssh.
pub struct Remote {
    child: Child,
}

impl Remote {
    /// Starts it. `by`: what flows are folded by. `lines`: whether the first document has what each
    /// class got in the last minute.
    ///
    /// # Errors
    /// There is no ssh here.
    pub fn start(
        args: &Args,
        host: &str,
        window: u32,
        by: Option<By>,
        lines: bool,
    ) -> anyhow::Result<(Remote, BufReader<ChildStdout>)> {
        let mut command = Command::new("ssh");
        // The other host's shell reads these words.
        command.args(["-o", "BatchMode=yes", "--", host, "altq", "top", "--json", "--window", &window.to_string()]);
        // On a screen another class may be chosen later; a host that was asked for the flows of one
        // class would go on sending those alone.
        let class = if args.form() == Form::Screen { &None } else { &args.class };
        for (option, value) in [("--link", &args.link), ("--class", class)] {
            if let Some(value) = value {
                command.arg(format!("{option}={}", quoted(value)));
            }
        }
        if let Some(by) = by {
            command.arg(format!("--by={}", by.word()));
        }
        if let Some(ago) = args.at {
            command.arg(format!("--at=-{}s", ago / SECOND));
        }
        if args.is_once() {
            command.arg("--once");
        }
        if lines {
            command.arg("--lines");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Messages of ssh would spoil a screen, so they are shown when ssh has ended.
        command.stderr(if args.form() == Form::Screen { Stdio::piped() } else { Stdio::inherit() });
        let mut child = command.spawn().map_err(|error| anyhow::anyhow!("ssh cannot be started: {error}"))?;
        let Some(out) = child.stdout.take() else { anyhow::bail!("ssh has no output") };
        Ok((Remote { child }, BufReader::new(out)))
    }

    /// Its process.
    #[cfg(feature = "top")]
    pub fn process(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        Ok(pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?)
    }

    /// Why it has ended: its exit code, and the last line of its messages.
    pub fn ended(mut self) -> (Exit, String) {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let code = self.child.wait().ok().and_then(|status| status.code()).unwrap_or(255);
        let exit = match code {
            0 => Exit::Ok,
            2 => Exit::Usage,
            6 => Exit::NotPermitted,
            7 => Exit::Unsupported,
            _ => Exit::Failed,
        };
        (exit, said.trim_end().lines().next_back().unwrap_or("it has ended").to_owned())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Shows the figures of `altq top` on another host.
pub fn remote(args: &Args, host: &str) -> anyhow::Result<Exit> {
    if args.form() == Form::Screen {
        return remote_screen(args, host);
    }
    let (remote, out) = Remote::start(args, host, args.window, args.by, args.lines)?;
    for line in out.lines() {
        let Ok(line) = line else { break };
        let shown = match args.form() {
            Form::Json => match printed(args, &line) {
                Ok(line) => output::line(&line)?,
                Err(fault) => return Ok(fail("top", &fault)),
            },
            _ => match read(&line) {
                Ok(document) => table(args, document)?,
                Err(fault) => return Ok(fail("top", &fault)),
            },
        };
        if !shown || args.is_once() {
            return Ok(Exit::Ok);
        }
    }
    let (exit, _) = remote.ended();
    if exit != Exit::Ok {
        eprintln!("altq top: ssh to {host} has ended without figures");
    }
    Ok(exit)
}

#[cfg(feature = "top")]
fn remote_screen(args: &Args, host: &str) -> anyhow::Result<Exit> {
    super::screen::remote(args, host)
}

#[cfg(not(feature = "top"))]
fn remote_screen(_: &Args, _: &str) -> anyhow::Result<Exit> {
    Ok(Exit::Unsupported)
}

/// Prints a table. False if nobody reads it any more.
#[cfg(feature = "top")]
fn table(args: &Args, document: Top) -> anyhow::Result<bool> {
    super::screen::table(args, document)
}

#[cfg(not(feature = "top"))]
fn table(_: &Args, _: Top) -> anyhow::Result<bool> {
    Ok(false)
}

#[cfg(all(test, feature = "top"))]
mod tests {
    use altq_engine::account::Counters;
    use altq_engine::units::Rate;
    use altq_monitor::document::{Link, More};
    use altq_monitor::{Class, Limits, Monitor, Second, Tree, Window};
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    /// A document about the link wan(b(web, rest), a).
    fn document() -> String {
        let classes = [("wan", 0, 9), ("b", 0, 1), ("web", 1, 1), ("rest", 1, 1), ("a", 0, 2)];
        let class = |(name, parent, rate): (&str, u32, u64)| Class {
            name: name.to_owned(),
            parent,
            asked: Some(Rate::mbit_s(rate)),
            ceiling: None,
        };
        let tree = Tree::new(classes.into_iter().map(class).collect()).unwrap();
        let mut monitor = Monitor::new(tree, Limits::default(), None);
        let counters = [Counters::default(); 5];
        monitor.second(Second { from: 0, to: SECOND, counters: &counters, ..Second::default() });
        let frame = monitor.frame(Window::Second).unwrap();
        let link = Link::of(&frame, monitor.counters(), |_| More::default());
        serde_json::to_string(&Top::new(vec![link])).unwrap()
    }

    #[test]
    fn json_has_the_classes_of_a_table_in_its_order() {
        let document = document();
        let args = |words: &[&str]| Program::parse_from([&["top", "--json"][..], words].concat()).args;
        for (words, expected) in [
            (&["--sort", "name"][..], &["wan", "a", "b", "rest", "web"][..]),
            (&["--sort", "ask"][..], &["wan", "a", "b", "web", "rest"][..]),
            (&["--filter", "WEB"][..], &["wan", "b", "web"][..]),
            (&["--filter", "s", "--sort", "name"][..], &["wan", "b", "rest"][..]),
        ] {
            let top = read(&printed(&args(words), &document).unwrap()).unwrap();
            let names: Vec<&str> = top.links[0].classes.iter().map(|class| class.name.as_str()).collect();
            assert_eq!(names, expected, "{words:?}");
        }
        // Nothing is chosen: it is printed as it came, even if another altq has more to say.
        assert_eq!(printed(&args(&["--class", "a"]), "{\"new\": 1}").unwrap(), "{\"new\": 1}");
        assert!(printed(&args(&["--sort", "got"]), "{\"new\": 1}").is_err());
    }
}
