//! The loop between keys, documents and the terminal.

use std::io::{self, Stdout};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use altq_monitor::document::Top;
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::{cursor, execute, terminal};

use crate::draw;
use crate::screen::{Act, Key, Screen};
use crate::traffic::{self, Traffic};

/// How long to wait for a key before documents are checked again.
const LOOK: Duration = Duration::from_millis(50);

/// What the source of the figures sends.
pub enum News {
    /// A document.
    Top(Box<Top>),
    /// The traffic of an interface that nobody shapes.
    Traffic(Box<Traffic>),
    /// Something is wrong; there may be more later.
    Trouble(String),
}

/// The terminal while it shows the screen. Dropping it restores the terminal.
struct Shown(Terminal<CrosstermBackend<Stdout>>);

impl Shown {
    fn new() -> io::Result<Shown> {
        terminal::enable_raw_mode()?;
        let made = execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match made {
            Ok(terminal) => Ok(Shown(terminal)),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.0.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }
}

fn leave() {
    // If the terminal is gone, there is nothing to restore.
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

impl Drop for Shown {
    fn drop(&mut self) {
        leave();
    }
}

/// A key of the terminal; `None` for keys without a meaning here.
fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('c' | 'd') if event.modifiers.contains(KeyModifiers::CONTROL) => Key::Char('\u{3}'),
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Back,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        _ => return None,
    })
}

/// Waits for the next key for a moment. `Some(None)`: the size has changed.
fn next() -> io::Result<Option<Option<Key>>> {
    if !event::poll(LOOK)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(event) => key(event).map(Some),
        Event::Resize(..) => Some(None),
        _ => None,
    })
}

/// Shows the screen until its user ends it, until `ended` is true, or until it is certain that
/// there will never be figures. `ask` is called when another document is needed.
///
/// # Errors
/// Those of the terminal.
pub fn show(
    screen: &mut Screen,
    news: &Receiver<News>,
    ended: impl Fn() -> bool,
    mut ask: impl FnMut(&Screen),
) -> io::Result<()> {
    let mut shown = Shown::new()?;
    let mut anew = true;
    let mut last: Option<Traffic> = None;
    loop {
        if ended() {
            return Ok(());
        }
        loop {
            match news.try_recv() {
                Ok(News::Top(document)) => {
                    if let Err(error) = screen.take(*document) {
                        screen.trouble = Some(error.to_string());
                    }
                }
                Ok(News::Traffic(traffic)) if !screen.paused => last = Some(*traffic),
                Ok(News::Traffic(_)) => {}
                Ok(News::Trouble(trouble)) => screen.trouble = Some(trouble),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if screen.link().is_none() && last.is_none() => return Ok(()),
                // There are no more figures. The last ones stay until the user ends the screen.
                Err(TryRecvError::Disconnected) => break,
            }
            anew = true;
        }
        if std::mem::take(&mut anew) {
            shown.draw(|buffer| match &last {
                Some(seen) => traffic::draw(screen, seen, buffer),
                None => draw(screen, buffer),
            })?;
        }
        match next()? {
            None => {}
            Some(None) => anew = true,
            Some(Some(Key::Char('\u{3}'))) => return Ok(()),
            // The screen of an interface has no classes, so it has no other keys.
            Some(Some(key)) if last.is_some() && !matches!(key, Key::Char('q' | 'w' | 'p')) => {}
            Some(Some(key)) => match screen.key(key) {
                Act::Quit => return Ok(()),
                Act::Nothing => {}
                Act::Draw => anew = true,
                Act::Ask => {
                    anew = true;
                    ask(screen);
                }
            },
        }
    }
}
