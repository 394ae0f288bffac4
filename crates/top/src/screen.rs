//! What `altq top` shows and what its user has chosen. Documents and keys change it.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use altq_engine::spec::{ClassId, ROOT};
use altq_monitor::document::{Class, Link, Top};
use altq_monitor::fold::{By, WORDS};
use altq_monitor::tree::TreeError;
use altq_monitor::view::Line;
use altq_monitor::{Frame, View, Window};

/// How many seconds of a line are kept.
pub const LINE: usize = 60;

/// How it is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// ASCII only.
    pub ascii: bool,
    /// With colours.
    pub color: bool,
}

/// A key, independent of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Back,
    /// Arrows.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// To the first row.
    Home,
    /// To the last row.
    End,
    /// Tab.
    Tab,
}

/// What follows from a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The screen must be drawn again.
    Draw,
    /// Another document is needed: for another window, for another class, or with flows that are
    /// folded otherwise.
    Ask,
    /// The user ends the screen.
    Quit,
    /// The key means nothing.
    Nothing,
}

/// What is shown, and what the user has chosen.
#[derive(Debug, Default)]
pub struct Screen {
    /// How it is drawn.
    pub look: Look,
    /// Which rows are shown.
    pub view: View,
    /// The window of the figures.
    pub window: Window,
    /// The class whose flows are shown; `None`: the link.
    pub chosen: Option<String>,
    /// What flows are folded by; `None`: each flow is shown by itself.
    pub by: Option<By>,
    /// True while new documents are ignored.
    pub paused: bool,
    /// True while the keys are explained.
    pub help: bool,
    /// True while a filter is typed.
    pub typing: bool,
    /// True if the figures are those of the past, which has no flows.
    pub is_past: bool,
    /// What is wrong, in place of the line of keys.
    pub trouble: Option<String>,
    /// The first visible row of the table.
    pub(crate) top: usize,
    /// How many rows of the table were visible when it was last drawn.
    pub(crate) seen: usize,
    /// Names of classes below which nothing is shown.
    folded: BTreeSet<String>,
    /// The link that is shown.
    at: usize,
    document: Option<Top>,
    frame: Option<Frame>,
    pub(crate) lines: Vec<Line>,
    /// By link and class, what it got each second.
    past: HashMap<(String, String), VecDeque<u64>>,
    /// By link: the end of the last second that is in its lines.
    until: HashMap<String, u64>,
}

impl Screen {
    /// A screen that shows nothing yet.
    pub fn new(look: Look, view: View, window: Window) -> Screen {
        Screen { look, view, window, ..Screen::default() }
    }

    /// Takes a document, unless the screen is paused.
    ///
    /// # Errors
    /// Its classes are no tree.
    pub fn take(&mut self, document: Top) -> Result<(), TreeError> {
        if self.paused {
            return Ok(());
        }
        for link in &document.links {
            self.remember(link);
        }
        self.at = self.at.min(document.links.len().saturating_sub(1));
        self.document = Some(document);
        self.trouble = None;
        self.look_at_link()
    }

    /// Adds new seconds to the lines.
    fn remember(&mut self, link: &Link) {
        // Of the same second, only an answer with a whole line has anything new: it comes after a
        // first document that had a single value.
        let known = self.until.get(&link.name) == Some(&link.at_ns);
        if known && link.classes.iter().all(|class| class.line_bit_s.len() < 2) {
            return;
        }
        self.until.insert(link.name.clone(), link.at_ns);
        for class in &link.classes {
            let past = self.past.entry((link.name.clone(), class.name.clone())).or_default();
            match class.line_bit_s.as_slice() {
                [] | [_] if known => {}
                [] => past.push_back(class.got_bit_s),
                [one] => past.push_back(*one),
                all => *past = all.iter().copied().collect(),
            }
            while past.len() > LINE {
                past.pop_front();
            }
        }
        if self.past.len() > 4 * link.classes.len() + 1000 {
            // Forgets classes that are gone.
            let there: HashSet<&str> = link.classes.iter().map(|class| class.name.as_str()).collect();
            self.past.retain(|(of, class), _| *of != link.name || there.contains(class.as_str()));
        }
    }

    fn look_at_link(&mut self) -> Result<(), TreeError> {
        self.frame = self.link().map(Link::frame).transpose()?;
        self.sort();
        Ok(())
    }

    /// Computes the rows and their order.
    fn sort(&mut self) {
        self.view.folded.clear();
        if let Some(frame) = self.frame.as_ref().filter(|_| !self.folded.is_empty()) {
            let classes = (0..).zip(frame.tree.classes());
            let folded = classes.filter(|(_, class)| self.folded.contains(&class.name));
            self.view.folded.extend(folded.map(|(class, _): (ClassId, _)| class));
        }
        self.lines = self.frame.as_ref().map(|frame| self.view.lines(frame)).unwrap_or_default();
        self.follow();
    }

    /// The link that is shown.
    pub fn link(&self) -> Option<&Link> {
        self.document.as_ref()?.links.get(self.at)
    }

    /// The number of links.
    pub fn links(&self) -> usize {
        self.document.as_ref().map_or(0, |document| document.links.len())
    }

    /// The frame that is shown.
    pub fn frame(&self) -> Option<&Frame> {
        self.frame.as_ref()
    }

    /// The class whose flows are shown.
    pub fn chosen_class(&self) -> Option<&Class> {
        let classes = &self.link()?.classes;
        match &self.chosen {
            Some(name) => classes.iter().find(|class| class.name == *name),
            None => classes.first(),
        }
    }

    /// What a class got each second, the oldest first.
    pub(crate) fn past(&self, class: &str) -> Option<&VecDeque<u64>> {
        self.past.get(&(self.link()?.name.clone(), class.to_owned()))
    }

    /// The row of the chosen class, if it is shown.
    pub(crate) fn row(&self) -> Option<usize> {
        let frame = self.frame.as_ref()?;
        match &self.chosen {
            Some(name) => self.lines.iter().position(|line| frame.tree.name(line.class) == name),
            None => Some(0),
        }
    }

    /// Scrolls so that the chosen row is visible.
    pub(crate) fn follow(&mut self) {
        let row = self.row().unwrap_or(0);
        let seen = self.seen.max(1);
        self.top = self.top.clamp(row.saturating_sub(seen - 1), row).min(self.lines.len().saturating_sub(seen));
    }

    /// Chooses another row.
    fn go(&mut self, row: usize) -> Act {
        let row = row.min(self.lines.len().saturating_sub(1));
        let (Some(frame), Some(line)) = (&self.frame, self.lines.get(row)) else { return Act::Nothing };
        let name = (line.class != ROOT).then(|| frame.tree.name(line.class).to_owned());
        if name == self.chosen && self.row() == Some(row) {
            return Act::Nothing;
        }
        self.chosen = name;
        self.follow();
        Act::Ask
    }

    /// The number of rows of the table.
    pub(crate) fn rows(&self) -> usize {
        self.lines.len()
    }

    /// Folds or unfolds the chosen class.
    fn fold(&mut self, fold: Option<bool>) -> Act {
        let line = self.row().and_then(|row| self.lines.get(row));
        let (Some(line), Some(frame)) = (line, &self.frame) else { return Act::Nothing };
        let name = frame.tree.name(line.class);
        match fold.unwrap_or(!self.folded.contains(name)) {
            true => self.folded.insert(name.to_owned()),
            false => self.folded.remove(name),
        };
        self.sort();
        Act::Draw
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> Act {
        if self.typing {
            return self.typed(key);
        }
        if self.help {
            self.help = false;
            return if key == Key::Char('q') { Act::Quit } else { Act::Draw };
        }
        let (row, page) = (self.row().unwrap_or(0), self.seen.saturating_sub(1).max(1));
        match key {
            Key::Char('q') => return Act::Quit,
            Key::Char('?' | 'h') => self.help = true,
            Key::Up | Key::Char('k') => return self.go(row.saturating_sub(1)),
            Key::Down | Key::Char('j') => return self.go(row + 1),
            Key::PageUp => return self.go(row.saturating_sub(page)),
            Key::PageDown => return self.go(row + page),
            Key::Home | Key::Char('g') => return self.go(0),
            Key::End | Key::Char('G') => return self.go(usize::MAX),
            Key::Enter | Key::Char(' ') => return self.fold(None),
            Key::Left => return self.fold(Some(true)),
            Key::Right => return self.fold(Some(false)),
            Key::Tab | Key::Char('l') if self.links() > 1 => {
                self.at = (self.at + 1) % self.links();
                (self.chosen, self.top) = (None, 0);
                self.folded.clear();
                if let Err(error) = self.look_at_link() {
                    self.trouble = Some(error.to_string());
                }
                return Act::Ask;
            }
            Key::Char('f') => {
                let at = self.by.and_then(|by| WORDS.iter().position(|(_, one)| *one == by));
                self.by = WORDS.get(at.map_or(0, |at| at + 1)).map(|(_, by)| *by);
                return Act::Ask;
            }
            Key::Char('s') => self.view.sort = self.view.sort.next(),
            Key::Char('r') => self.view.reverse = !self.view.reverse,
            Key::Char('z') => self.view.hide_idle = !self.view.hide_idle,
            Key::Char('t') => self.view.flat = !self.view.flat,
            Key::Char('/') => self.typing = true,
            Key::Char('p') => {
                self.paused = !self.paused;
                return if self.paused { Act::Draw } else { Act::Ask };
            }
            Key::Char('w') => {
                let at = Window::ALL.iter().position(|window| *window == self.window).unwrap_or(0);
                self.window = Window::ALL.get(at + 1).copied().unwrap_or_default();
                return Act::Ask;
            }
            Key::Escape if !self.view.filter.is_empty() => self.view.filter.clear(),
            _ => return Act::Nothing,
        }
        self.sort();
        Act::Draw
    }

    /// Handles a key while a filter is typed.
    fn typed(&mut self, key: Key) -> Act {
        match key {
            Key::Char(c) if !c.is_control() && self.view.filter.len() < 64 => self.view.filter.push(c),
            Key::Back => _ = self.view.filter.pop(),
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.typing = false;
                self.view.filter.clear();
            }
            _ => return Act::Nothing,
        }
        self.sort();
        Act::Draw
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::account::Counters;
    use altq_engine::units::SECOND;
    use altq_monitor::document::More;
    use altq_monitor::{Limits, Monitor, Second, Tree, tree};

    use super::*;

    #[test]
    fn a_whole_line_of_a_known_second_is_taken() {
        let class = tree::Class { name: "link".to_owned(), parent: ROOT, asked: None, ceiling: None };
        let mut monitor = Monitor::new(Tree::new(vec![class]).unwrap(), Limits::default(), None);
        let counters = [Counters::default()];
        monitor.second(Second { from: 0, to: SECOND, counters: &counters, ..Second::default() });
        let frame = monitor.frame(Window::Second).unwrap();
        let document = |line: &[u64]| {
            let more = |_| More { line_bit_s: line.to_vec(), ..More::default() };
            Top::new(vec![Link::of(&frame, monitor.counters(), more)])
        };
        let mut screen = Screen::new(Look::default(), View::default(), Window::Second);
        // The first answer, the minute that was asked for, and an answer for another class.
        for line in [&[5][..], &[1, 2, 5], &[5]] {
            screen.take(document(line)).unwrap();
        }
        assert_eq!(screen.past("link").unwrap(), &[1, 2, 5]);
    }
}
