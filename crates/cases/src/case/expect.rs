//! Reads `[[expect]]` and `[[figures]]`: what is measured, and what is expected.

use std::collections::HashSet;
use std::ops::Range;

use altq_engine::units::{Nanos, Rate};
use toml::Spanned;

use super::measure::{Bound, CounterName, Expectation, Figure, Figured, Measure, Probe, Subject, UNITS, Unit};
use super::table::Context;
use super::words::{bound, find, number, unique, world};
use super::wrong::{Result, bad, unknown};
use super::{Case, raw};
use crate::world::World;

/// The keys of a measurement, which `[[expect]]` and `[[figures]]` share.
struct Words<'a> {
    measure: &'a Spanned<String>,
    class: &'a Option<Spanned<String>>,
    flow: &'a Option<Spanned<String>>,
    of: &'a Option<Spanned<String>>,
    from: &'a Option<Spanned<raw::Time>>,
    to: &'a Option<Spanned<raw::Time>>,
    level: &'a Option<Spanned<raw::Rate>>,
    over: &'a Option<Spanned<raw::Time>>,
    counter: &'a Option<Spanned<String>>,
    /// The whole entry, for messages.
    place: Range<usize>,
    /// True if the simulator need not have the measure.
    lab_only: bool,
}

fn probe(words: &Words<'_>, case: &Case, context: &Context<'_>) -> Result<Probe> {
    let word = words.measure.get_ref().as_str();
    let Some((_, measure)) = Measure::ALL.iter().find(|(name, _)| *name == word) else {
        let all = Measure::ALL.map(|(name, _)| name);
        return bad(words.measure, unknown(&format!("there is no measure {word:?}"), word, "Measures", all));
    };
    if measure.of_lab() && !words.lab_only {
        let lacks = if *measure == Measure::HtbRatio { "kernel HTB" } else { "host whose time could be measured" };
        return bad(words.measure, format!("the simulator has no {lacks}; write world = \"lab\""));
    }
    let subject = match (words.class, words.flow) {
        (Some(class), None) if measure.of_class() => Subject::Class(context.class(class)),
        (None, Some(flow)) if measure.of_flow() => {
            Subject::Flow(find(flow, "flow", case.flows.iter().map(|f| f.name.as_str()))?)
        }
        (Some(class), None) => return bad(class, format!("{word} is measured of a flow")),
        (None, Some(flow)) => return bad(flow, format!("{word} is measured of a class")),
        _ => return Err((Some(words.place.clone()), "of what? Write class or flow, one of them".into())),
    };
    if let Some(of) = words.of.as_ref().filter(|_| *measure != Measure::Share) {
        return bad(of, "only a share is a share of something");
    }
    match (*measure == Measure::Counter, words.counter) {
        (true, None) => return bad(words.measure, "which one? Write counter, a name that tc -s prints"),
        (false, Some(counter)) => return bad(counter, "only the measure counter has a name"),
        _ => {}
    }
    if let Some(at) = [words.from, words.to].into_iter().flatten().next().filter(|_| measure.of_the_end()) {
        return bad(at, "it is read at the end of the run; leave from and to out");
    }
    let from = words.from.as_ref().map_or(case.warmup, |t| t.get_ref().0);
    let to = words.to.as_ref().map_or(case.duration, |t| t.get_ref().0);
    if from >= to || to > case.duration {
        let at = words.to.as_ref().or(words.from.as_ref()).map_or(words.place.clone(), |t| t.span());
        return Err((Some(at), "the window ends before it begins, or after the case is over".into()));
    }
    let (level, over) = reach(words, *measure, to - from)?;
    let counter = words.counter.as_ref().map(|name| {
        let place = (context.place)(&name.span());
        Box::new(CounterName { text: name.get_ref().clone(), place })
    });
    let of = words.of.as_ref().map(|of| context.class(of));
    Ok(Probe { measure: *measure, subject, of, from, to, level, over, counter })
}

/// Reads `level` and `over`, which only the measure `reach` has.
fn reach(words: &Words<'_>, measure: Measure, window: Nanos) -> Result<(Rate, Nanos)> {
    match (measure == Measure::Reach, words.level, words.over) {
        (true, Some(level), Some(over)) => {
            if level.get_ref().0.is_zero() {
                return bad(level, "0 bit/s is reached at once");
            }
            if over.get_ref().0 == 0 || over.get_ref().0 > window {
                return bad(over, "over is some time, and no longer than the window");
            }
            Ok((level.get_ref().0, over.get_ref().0))
        }
        (true, _, _) => bad(words.measure, "which rate is to be reached, and over how long? Write level and over"),
        (false, None, None) => Ok((Rate::ZERO, 0)),
        (false, Some(level), _) => bad(level, "only the measure reach has a level"),
        (false, None, Some(over)) => bad(over, "only the measure reach is over a time"),
    }
}

/// Reads the figures of a case.
pub fn figures(raw: &[Spanned<raw::Figured>], case: &Case, context: &Context<'_>) -> Result<Vec<Figure>> {
    let mut names = HashSet::new();
    let mut list: Vec<Figure> = Vec::new();
    for figure in raw {
        let (place, f) = (figure.span(), figure.get_ref());
        unique(&mut names, &f.name, "figure")?;
        let what = match (&f.measure, &f.ratio) {
            (Some(measure), None) => Figured::Probe(probe(
                &Words {
                    measure,
                    class: &f.class,
                    flow: &f.flow,
                    of: &f.of,
                    from: &f.from,
                    to: &f.to,
                    level: &f.level,
                    over: &f.over,
                    counter: &f.counter,
                    place,
                    lab_only: true,
                },
                case,
                context,
            )?),
            (None, Some(pair)) => {
                let spans = [&f.class, &f.flow, &f.of, &f.counter].into_iter().flatten().map(|s| s.span());
                let times = [&f.from, &f.to, &f.over].into_iter().flatten().map(|s| s.span());
                if let Some(at) = spans.chain(times).chain(f.level.as_ref().map(|l| l.span())).next() {
                    return Err((Some(at), "a ratio takes two figures above, and nothing else".into()));
                }
                let (first, second) = pair.get_ref();
                let above = |name| find(name, "figure above", list.iter().map(|f| f.name.as_str()));
                Figured::Ratio(above(first)?, above(second)?)
            }
            (Some(_), Some(pair)) => return bad(pair, "a figure is measured, or the ratio of two others"),
            (None, None) => {
                return Err((Some(place), "where does the figure come from? Write measure or ratio".into()));
            }
        };
        let unit = match &what {
            Figured::Probe(probe) => probe.measure.unit(),
            Figured::Ratio(..) => Unit::Count,
        };
        let fitting = || UNITS.iter().filter(|shown| shown.unit == unit);
        let shown = match &f.unit {
            None => fitting().next(),
            Some(word) => match fitting().find(|shown| shown.name == word.get_ref()) {
                Some(shown) => Some(shown),
                None => {
                    let names: Vec<String> = fitting().map(|shown| format!("{:?}", shown.name)).collect();
                    return bad(
                        word,
                        format!("this figure has no unit {:?}; units: {}", word.get_ref(), names.join(", ")),
                    );
                }
            },
        };
        let Some(unit) = shown else { return Err((Some(figure.span()), "this figure has no unit".into())) };
        list.push(Figure { name: f.name.get_ref().clone(), what, unit, here: in_row(&f.rows, context)? });
    }
    Ok(list)
}

/// Reads the expectations of a case that are about its row and column.
pub fn expectations(raw: &[Spanned<raw::Expect>], case: &Case, context: &Context<'_>) -> Result<Vec<Expectation>> {
    let mut names = HashSet::new();
    let mut list = Vec::new();
    for whole in raw {
        let (place, e) = (whole.span(), whole.get_ref());
        let column = match &e.column {
            Some(name) => {
                find(name, "column", context.columns.iter().map(String::as_str))?;
                Some(name.get_ref().clone())
            }
            None => None,
        };
        let name = e.name.as_ref().map_or(String::new(), |name| name.get_ref().clone());
        if name.is_empty() && (e.name.is_some() || context.row.is_none()) {
            let at = e.name.as_ref().map_or(place, |n| n.span());
            return Err((Some(at), "an expectation needs a name: name = \"…\", unique in its column".into()));
        }
        let world = e.world.as_ref().map(world).transpose()?;
        // If only the lab can run a case, the case may expect what only the lab can measure.
        let in_lab =
            |world| world == Some(World::Lab) || case.only.as_ref().is_some_and(|only| only.world == World::Lab);
        if !in_row(&e.rows, context)? {
            continue;
        }
        if !names.insert((column.clone(), world.map(|w| w as u8), name.clone())) {
            let at = e.name.as_ref().map_or(place, |n| n.span());
            return Err((Some(at), format!("there are two expectations called {name:?}")));
        }
        let (figure, probe) = subject(e, &place, case, context, in_lab(world))?;
        let unit = figure.map_or(probe.measure.unit(), |at: usize| case.figures[at].unit.unit);
        let bound = e.bound.as_ref().map_or(Ok(Bound::Within), bound)?;
        let (expected, published) = match e.expected.get_ref() {
            raw::Figure::Text(text) if text == "published" => {
                let Some(at) = figure else {
                    return bad(&e.expected, "only a figure has been published; write figure");
                };
                let shown = &case.figures[at];
                // Without a published figure for the row, or if it is known why that figure does
                // not come out, there is no expectation.
                let known = context.row.and_then(|row| row.published.get(&shown.name));
                let Some(known) = known.filter(|_| !context.not_reproduced.contains(shown.name.as_str())) else {
                    continue;
                };
                (known.value * shown.unit.factor, Some(known))
            }
            _ => (number(&e.expected, unit, None)?, None),
        };
        let tolerance = match &e.tolerance {
            Some(tolerance) => number(tolerance, unit, Some(expected))?,
            None if bound == Bound::Within => {
                return Err((Some(place), "how far off may it be? Write a tolerance".into()));
            }
            None => 0.0,
        };
        let source = match (&e.source, published) {
            (Some(source), _) if source.get_ref().trim().is_empty() => {
                return bad(source, "where does the expected figure come from?");
            }
            (Some(source), None) => source.get_ref().clone(),
            (Some(source), Some(published)) => format!("{}; {}", published.source, source.get_ref()),
            (None, Some(published)) => published.source.clone(),
            (None, None) => return Err((Some(place), "where does the expected figure come from? Write source".into())),
        };
        if context.column.is_some() && column.as_deref().is_some_and(|c| Some(c) != context.column) {
            continue;
        }
        list.push(Expectation {
            name,
            probe,
            figure,
            expected,
            tolerance,
            bound,
            column,
            world,
            source,
            published: published.is_some(),
        });
    }
    Ok(list)
}

/// Whether an expectation or a figure is about this row.
fn in_row(rows: &Option<Spanned<Vec<Spanned<String>>>>, context: &Context<'_>) -> Result<bool> {
    let Some(rows) = rows else { return Ok(true) };
    let mut here = false;
    for name in rows.get_ref() {
        find(name, "row", context.rows.iter().map(|row| row.name.as_str()))?;
        here |= context.row.is_some_and(|row| row.name == *name.get_ref());
    }
    Ok(here)
}

/// What an expectation is about: a figure of the case, by its index, or a measurement of its own.
fn subject(
    e: &raw::Expect,
    place: &Range<usize>,
    case: &Case,
    context: &Context<'_>,
    lab_only: bool,
) -> Result<(Option<usize>, Probe)> {
    let words = |measure| Words {
        measure,
        class: &e.class,
        flow: &e.flow,
        of: &e.of,
        from: &e.from,
        to: &e.to,
        level: &e.level,
        over: &e.over,
        counter: &e.counter,
        place: place.clone(),
        lab_only,
    };
    match (&e.measure, &e.figure) {
        (Some(measure), None) => Ok((None, probe(&words(measure), case, context)?)),
        (None, Some(name)) => {
            let spans = [&e.class, &e.flow, &e.of, &e.counter].into_iter().flatten().map(|s| s.span());
            let times = [&e.from, &e.to, &e.over].into_iter().flatten().map(|s| s.span());
            if let Some(at) = spans.chain(times).chain(e.level.as_ref().map(|l| l.span())).next() {
                return Err((Some(at), "the figure already says what is measured".into()));
            }
            let at = find(name, "figure", case.figures.iter().map(|f| f.name.as_str()))?;
            let none = Probe {
                measure: case.figures[at].measure(),
                subject: Subject::Figures,
                of: None,
                from: case.warmup,
                to: case.duration,
                level: Rate::ZERO,
                over: 0,
                counter: None,
            };
            Ok((Some(at), case.figures[at].probe().cloned().unwrap_or(none)))
        }
        (Some(_), Some(figure)) => bad(figure, "the measure already says what is meant"),
        (None, None) => Err((Some(place.clone()), "what is measured? Write measure or figure".into())),
    }
}
