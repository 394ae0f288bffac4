//! Prints findings as text: file, line and column, the line with a caret, the reason, and the help.

use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet, renderer::DecorStyle};

use crate::diagnostic::{Diagnostic, Severity, Sources, Span};

/// How many characters of a line are shown before and behind a place, at most.
const WINDOW: usize = 90;

/// Prints findings, each with its place and an empty line behind it. `color` says whether ANSI
/// colours are used.
pub fn render(diagnostics: &[Diagnostic], sources: &Sources, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let mut out = String::new();
    for diagnostic in diagnostics {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code);
        let mut group = title.elements(snippet(diagnostic.span, None, sources));
        for (span, text) in &diagnostic.labels {
            group = group.elements(snippet(*span, Some(text), sources));
        }
        if let Some(help) = &diagnostic.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let report: &[Group<'_>] = &[group];
        out.push_str(&renderer.render(report));
        out.push_str("\n\n");
    }
    out
}

/// The line of a place, cut around it where it is long, with the place marked.
fn snippet(span: Span, label: Option<&str>, sources: &Sources) -> Vec<Element<'static>> {
    let text = sources.text(span.source);
    let path = sources.path(span.source).display().to_string();
    if text.is_empty() {
        return vec![Origin::path(path).line(1).char_column(1).into()];
    }
    let start = span.start.min(text.len());
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let end = span.end.clamp(start, line_end);
    // Characters, not bytes, so that no character is cut in half.
    let from =
        text[line_start..start].char_indices().rev().nth(WINDOW - 1).map_or(line_start, |(at, _)| line_start + at);
    let marked = text[start..end].char_indices().nth(WINDOW).map_or(end, |(at, _)| start + at);
    let to = text[marked..line_end].char_indices().nth(WINDOW).map_or(line_end, |(at, _)| marked + at);
    let (before, after) = (if from > line_start { "…" } else { "" }, if to < line_end { "…" } else { "" });
    let shown = format!("{before}{}{after}", clean(&text[from..to]));
    let at = before.len() + start - from;
    let range = at..(at + marked - start).max(at);
    let kind = if label.is_some() { AnnotationKind::Context } else { AnnotationKind::Primary };
    let mut annotation = kind.span(range);
    if let Some(label) = label {
        annotation = annotation.label(label.to_owned());
    }
    let (line, column) = sources.line_column(span);
    let snippet = Snippet::source(shown).line_start(line).annotation(annotation);
    if before.is_empty() {
        return vec![snippet.path(path).into()];
    }
    // The renderer would count columns in the cut line, so the place is given separately.
    vec![Origin::path(path).line(line).char_column(column).into(), snippet.into()]
}

/// Replaces control characters by spaces, as they would move the caret or control the terminal.
/// Each is one byte before and after, so places stay as they are.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_control() { ' ' } else { c }).collect()
}
