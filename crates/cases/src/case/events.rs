//! Reads `[[events]]`.

use altq_engine::units::Nanos;
use toml::Spanned;

use super::event::{TimedEvent, What, WordValue};
use super::raw;
use super::table::Context;
use super::topology::CaseLink;
use super::traffic::{Flow, Kind, Shape};
use super::words::find;
use super::wrong::{Result, bad};

/// Reads the events of a case, and sorts them by time.
pub(super) fn events(
    raw: &[Spanned<raw::Event>],
    links: &[CaseLink],
    flows: &[Flow],
    duration: Nanos,
    context: &Context<'_>,
) -> Result<Vec<TimedEvent>> {
    let mut events = Vec::new();
    for event in raw {
        let at = &event.get_ref().at;
        if at.get_ref().0 >= duration {
            return bad(at, "the case is over by then");
        }
        events.push(TimedEvent { at: at.get_ref().0, what: what(event, links, flows, context)? });
    }
    // Events at the same time stay in the order in which they were written.
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// Reads what an event changes.
fn what(place: &Spanned<raw::Event>, links: &[CaseLink], flows: &[Flow], context: &Context<'_>) -> Result<What> {
    let event = place.get_ref();
    let named = |key: &Option<Spanned<String>>| key.as_ref().map(|name| context.class(name));
    let set = || {
        let words = event.set.as_ref().map(|set| set.get_ref().iter()).into_iter().flatten();
        words
            .map(|(word, value)| {
                let value = match value {
                    raw::Word::Flag(flag) => WordValue::Flag(*flag),
                    raw::Word::Number(n) => WordValue::Number(*n),
                    raw::Word::Text(text) => WordValue::Text(text.clone()),
                };
                (word.clone(), value)
            })
            .collect::<Vec<_>>()
    };
    if let Some(class) = &event.class {
        only(event, &["class", "parent", "set"])?;
        if event.set.is_none() && event.parent.is_none() {
            return bad(place, "what changes about the class? Write set or parent");
        }
        Ok(What::SetClass { class: context.class(class), parent: named(&event.parent), set: set() })
    } else if let Some(class) = &event.add {
        only(event, &["add", "parent", "set", "flows"])?;
        let names = event.flows.iter().flat_map(|list| list.get_ref().iter());
        let flows = names.map(|f| find(f, "flow", flows.iter().map(|f| f.name.as_str()))).collect::<Result<_>>()?;
        Ok(What::AddClass { class: context.class(class), parent: named(&event.parent), set: set(), flows })
    } else if let Some(class) = &event.remove {
        only(event, &["remove", "heir"])?;
        Ok(What::RemoveClass { class: context.class(class), heir: named(&event.heir) })
    } else if let Some(link) = &event.link {
        only(event, &["link", "rate", "reverse_rate"])?;
        let at = find(link, "link", links.iter().map(|l| l.name.as_str()))?;
        let rates = [&event.rate, &event.reverse_rate];
        if let Some(rate) = rates.into_iter().flatten().find(|rate| rate.get_ref().0.is_zero()) {
            return bad(rate, "a link at 0 bit/s carries nothing");
        }
        if let Some(rate) = event.reverse_rate.as_ref().filter(|_| links.get(at).is_some_and(|link| link.half_duplex)) {
            return bad(rate, "a half-duplex medium has one rate");
        }
        match rates.map(|rate| rate.as_ref().map(|rate| rate.get_ref().0)) {
            [None, None] => bad(place, "what changes about the link? Write rate or reverse_rate"),
            // A rate holds for both directions, unless the direction back has its own.
            [there, back] => Ok(What::LinkRate { link: at, rates: [there, back.or(there)] }),
        }
    } else if let Some(name) = &event.flow {
        only(event, &["flow", "rate", "active"])?;
        let flow = find(name, "flow", flows.iter().map(|f| f.name.as_str()))?;
        match (&event.rate, &event.active) {
            (Some(rate), None) if rate.get_ref().0.is_zero() => bad(rate, "write active = false instead"),
            (Some(rate), None) => {
                let unpaced = |shape: &Shape| matches!(shape, Shape::Bursts { .. } | Shape::Local { .. });
                let paced = matches!(&flows[flow].kind, Kind::Udp(udp) if !unpaced(&udp.shape));
                if !paced {
                    return bad(rate, "only UDP flows with a pace have a rate");
                }
                Ok(What::FlowRate { flow, rate: rate.get_ref().0 })
            }
            (None, Some(active)) => Ok(What::FlowActive { flow, active: *active.get_ref() }),
            _ => bad(place, "what changes about the flow? Write rate or active, one of them"),
        }
    } else {
        bad(place, "what changes? Write one of class, add, remove, link, flow")
    }
}

/// Checks that an event has only these keys. The first one says what changes.
fn only(event: &raw::Event, known: &[&str]) -> Result<()> {
    macro_rules! keys {
        ($($key:ident)*) => { [$((stringify!($key), event.$key.as_ref().map(|v| v.span()))),*] };
    }
    for (key, span) in keys!(link flow class add remove rate reverse_rate active parent heir flows set) {
        if span.is_some() && !known.contains(&key) {
            let event = known.first().unwrap_or(&"this event");
            return Err((span, format!("{key} does not go with {event}")));
        }
    }
    Ok(())
}
