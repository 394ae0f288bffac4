//! Tables and screens of `altq top`.

use std::io::BufRead;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use altq_control::client::Client;
use altq_dataplane::signal::Watch;
use altq_monitor::document::{Class, Top};
use altq_monitor::fold::By;
use altq_monitor::tree::TreeError;
use altq_monitor::view::Sort;
use altq_monitor::{View, Window};
use altq_top::terminal::{News, show};
use altq_top::{Look, Screen, plain};
use anyhow::Context as _;
use rustix::process::{Signal, pidfd_send_signal};

use super::source::{Remote, Wanted, again};
use super::{Args, Column, Form};
use crate::exit::Exit;
use crate::output;
use crate::socket::fail;

/// Time between two documents.
const EACH: Duration = Duration::from_secs(1);
/// The default width of a table, in columns.
const WIDTH: u16 = 100;

impl From<Column> for Sort {
    fn from(column: Column) -> Sort {
        match column {
            Column::Policy => Sort::Policy,
            Column::Name => Sort::Name,
            Column::Ask => Sort::Asked,
            Column::Got => Sort::Got,
            Column::Borrowed => Sort::Borrowed,
            Column::Lent => Sort::Lent,
            Column::P50 => Sort::P50,
            Column::P99 => Sort::P99,
            Column::Drops => Sort::Drops,
            Column::Backlog => Sort::Backlog,
        }
    }
}

/// True if the locale has UTF-8 (locale(7): the first of these that is set decides).
fn is_utf8() -> bool {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(set).and_then(|name| std::env::var(name).ok());
    locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn look(args: &Args) -> Look {
    let no_color = args.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Look { ascii: args.ascii || !is_utf8(), color: !no_color && args.form() == Form::Screen }
}

/// Which classes are shown, and in which order.
fn view(args: &Args) -> View {
    View { sort: args.sort.into(), filter: args.filter.clone(), ..View::default() }
}

/// A document with the classes that a table shows, in its order. Those that are left out stay in
/// the figures of the classes above them.
pub fn chosen(args: &Args, mut document: Top) -> Result<Top, TreeError> {
    if args.chooses() {
        for link in &mut document.links {
            let lines = view(args).lines(&link.frame()?);
            let mut classes: Vec<Option<Class>> = std::mem::take(&mut link.classes).into_iter().map(Some).collect();
            link.classes = lines.iter().filter_map(|line| classes.get_mut(line.class as usize)?.take()).collect();
        }
    }
    Ok(document)
}

/// An empty screen with the given options.
pub fn screen(args: &Args) -> Screen {
    let window = match args.window {
        60 => Window::Minute,
        10 => Window::Ten,
        _ => Window::Second,
    };
    let mut screen = Screen::new(look(args), view(args), window);
    screen.chosen.clone_from(&args.class);
    screen.is_past = args.at.is_some();
    screen.by = args.by;
    screen
}

pub fn seconds(window: Window) -> u32 {
    match window {
        Window::Second => 1,
        Window::Ten => 10,
        Window::Minute => 60,
    }
}

/// The width of a table, in columns.
pub fn width() -> u16 {
    output::width().and_then(|width| u16::try_from(width).ok()).unwrap_or(WIDTH)
}

/// Prints a table of each link. False if nobody reads it any more.
pub fn table(args: &Args, document: Top) -> anyhow::Result<bool> {
    let mut text = String::new();
    for link in document.links {
        let mut screen = screen(args);
        screen.take(Top::new(vec![link])).context("the classes are no tree")?;
        text += &plain::table(&mut screen, width());
        text.push('\n');
    }
    // The end of the last line is added when it is printed.
    text.pop();
    text.pop();
    output::line(&text)
}

/// Shows what the control socket answers: in a table, repeatedly unless `--once`, or on a screen.
pub fn local(args: &Args, client: Client, mut wanted: Wanted, first: Top) -> anyhow::Result<Exit> {
    let mut client = Some(client);
    wanted.line_s = args.at.is_none().then_some(60);
    if args.form() == Form::Table {
        loop {
            let document = match again(args, &mut client, &wanted) {
                Ok(document) => document,
                Err(fault) => return Ok(fail("top", &fault)),
            };
            if !table(args, document)? || args.is_once() {
                return Ok(Exit::Ok);
            }
            std::thread::sleep(EACH);
        }
    }
    let mut screen = screen(args);
    screen.take(first).context("the classes are no tree")?;
    wanted.class = screen.chosen_class().map(|class| class.name.clone());
    let signals = Watch::new().context("signals cannot be watched")?;
    std::thread::scope(|scope| {
        let (news, shown) = channel();
        let (ask, asked) = channel();
        scope.spawn(move || ask_again(args, client, wanted, &asked, &news));
        let ended = || signals.seen();
        let result = show(&mut screen, &shown, ended, |screen| {
            // It may have ended.
            let _ = ask.send((screen.window, screen.chosen_class().map(|class| class.name.clone()), screen.by));
        });
        drop(ask);
        result
    })
    .context("the terminal cannot be used")?;
    Ok(Exit::Ok)
}

/// Asks once a second, and immediately when something else is wanted.
fn ask_again(
    args: &Args,
    mut client: Option<Client>,
    mut wanted: Wanted,
    asked: &Receiver<(Window, Option<String>, Option<By>)>,
    news: &Sender<News>,
) {
    let (mut next, mut is_due) = (Instant::now(), true);
    loop {
        let told = match again(args, &mut client, &wanted) {
            Ok(document) => {
                // From now on only the last second of each line is needed.
                wanted.line_s = args.at.is_none().then_some(1);
                News::Top(Box::new(document))
            }
            Err(fault) => {
                wanted.line_s = args.at.is_none().then_some(60);
                // The class is gone, so it has no flows.
                wanted.class = None;
                News::Trouble(fault.to_string())
            }
        };
        if news.send(told).is_err() {
            return;
        }
        // However long answers take, no second of the sparklines is left out.
        let now = Instant::now();
        if is_due {
            next = (next + EACH).max(now);
        }
        is_due = false;
        match asked.recv_timeout(next.saturating_duration_since(now)) {
            Ok(first) => {
                // If several keys were pressed, the last one counts.
                let (window, class, by) = asked.try_iter().last().unwrap_or(first);
                (wanted.window_s, wanted.class, wanted.by) = (seconds(window), class, by.map(By::word));
            }
            Err(RecvTimeoutError::Timeout) => is_due = true,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Shows the figures of another host on a screen.
pub fn remote(args: &Args, host: &str) -> anyhow::Result<Exit> {
    let mut screen = screen(args);
    let mut chosen = (screen.window, screen.by);
    let signals = Watch::new().context("signals cannot be watched")?;
    let ended = || signals.seen();
    let (news, shown) = channel();
    let mut running = Some(listen(args, host, chosen, news.clone())?);
    show(&mut screen, &shown, ended, |screen| {
        if (screen.window, screen.by) != chosen {
            chosen = (screen.window, screen.by);
            // The old one must end first: its documents are what was chosen before.
            running = None;
            match listen(args, host, chosen, news.clone()) {
                Ok(next) => running = Some(next),
                Err(error) => _ = news.send(News::Trouble(error.to_string())),
            }
        }
    })
    .context("the terminal cannot be used")?;
    drop(running);
    Ok(Exit::Ok)
}

/// Ends the reader of another host's figures when it is dropped.
struct Listening {
    process: OwnedFd,
    /// Set before it is ended: then its end is no trouble.
    is_over: Arc<AtomicBool>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Its thread waits for its end. An error means that it has ended already.
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
    }
}

/// Reads another host's documents, in a thread. `chosen`: the window, and what flows are folded by.
fn listen(args: &Args, host: &str, chosen: (Window, Option<By>), news: Sender<News>) -> anyhow::Result<Listening> {
    let (window, by) = chosen;
    let (remote, out) = Remote::start(args, host, seconds(window), by, args.at.is_none())?;
    let process = remote.process().context("ssh has ended")?;
    let (host, is_over) = (host.to_owned(), Arc::new(AtomicBool::new(false)));
    let over = is_over.clone();
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let told = match serde_json::from_str(&line) {
                Ok(document) => News::Top(Box::new(document)),
                Err(error) => News::Trouble(format!("{host}: its answer cannot be read ({error})")),
            };
            if news.send(told).is_err() {
                return;
            }
        }
        let (_, said) = remote.ended();
        if !over.load(Ordering::Relaxed) {
            let _ = news.send(News::Trouble(format!("{host}: {said}")));
        }
    });
    Ok(Listening { process, is_over })
}
