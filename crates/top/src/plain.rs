//! Prints a buffer as text, for a table that is printed once.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use crate::draw;
use crate::screen::Screen;

/// How many rows of the table are drawn at a time: a buffer has at most 65,535.
const PART: u16 = 1000;

/// The lines of a buffer, without spaces at their ends.
pub fn text(buffer: &Buffer) -> String {
    let area = buffer.area();
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        for x in area.left()..area.right() {
            line += buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The whole table and the flows of the chosen class, in so many columns.
pub fn table(screen: &mut Screen, width: u16) -> String {
    let width = width.max(40);
    let mut all = String::new();
    let mut head = Buffer::empty(Rect::new(0, 0, width, draw::HEAD));
    draw::head(screen, &mut head, Rect::new(0, 0, width, draw::HEAD));
    all += &text(&head);
    let rows = screen.rows();
    for from in (0..rows).step_by(usize::from(PART)) {
        let height = u16::try_from(rows - from).unwrap_or(PART).min(PART);
        let area = Rect::new(0, 0, width, height);
        let mut part = Buffer::empty(area);
        draw::rows(screen, &mut part, area, from);
        all += &text(&part);
    }
    if let Some(class) = screen.chosen_class().filter(|class| class.other_bytes.is_some()) {
        let height = u16::try_from(class.flows.len().max(class.groups.len()) + 3).unwrap_or(PART).min(PART);
        let area = Rect::new(0, 0, width, height);
        let mut flows = Buffer::empty(area);
        draw::flows(screen, &mut flows, area);
        all += &text(&flows);
    }
    all
}
