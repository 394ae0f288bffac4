//! The words of a class, read and checked.

use super::curve::{FirstPiece, Runtime};
use crate::settings::{Kind, Settings, Word};
use crate::shape::service_curve::ServiceCurve;
use crate::spec::SpecError;

/// What a class takes.
pub const CLASS: &[Word] = &[
    Word {
        name: "realtime",
        kind: Kind::Curve,
        help: "what it is served by deadline whatever others want, R or R1 for T then R2",
        default: "none",
    },
    Word {
        name: "linkshare",
        kind: Kind::Curve,
        help: "its part of what deadlines leave, in proportion to its siblings', R or R1 for T then R2",
        default: "none",
    },
    Word {
        name: "upperlimit",
        kind: Kind::Curve,
        help: "the most that it may have together with its share, R or R1 for T then R2",
        default: "none",
    },
];

/// A curve that has not run yet.
pub type NewCurve = (Runtime, Option<FirstPiece>);

/// The curves of a class. A rate of 0 says that there is none, but for the upper limit, which may
/// not be 0.
pub struct Words {
    pub realtime: NewCurve,
    pub share: NewCurve,
    pub limit: Option<NewCurve>,
}

impl Words {
    pub fn read(settings: &Settings) -> Result<Words, SpecError> {
        let words = Words {
            realtime: curve("realtime", settings)?.unwrap_or_default(),
            share: curve("linkshare", settings)?.unwrap_or_default(),
            limit: curve("upperlimit", settings)?,
        };
        if words.limit.is_some_and(|limit| limit.0.slope.is_zero()) {
            let error = SpecError::word(
                "upperlimit",
                "an upper limit of 0bit/s lets the class send nothing beyond its `realtime`",
            );
            return Err(
                error.help("for a class that is only served by deadline leave `linkshare` and `upperlimit` out")
            );
        }
        // docs/reference/altq.md 3.1: a class with neither curve is refused.
        if words.realtime.0.slope.is_zero() && words.share.0.slope.is_zero() {
            let error = SpecError::new("a class of hfsc needs `linkshare` or `realtime`: without both it never sends");
            return Err(error.help("as `linkshare 10%`"));
        }
        Ok(words)
    }
}

fn curve(word: &'static str, settings: &Settings) -> Result<Option<NewCurve>, SpecError> {
    let Some(curve) = settings.curve(word) else { return Ok(None) };
    let ServiceCurve { first, until, then } = curve;
    if then.is_zero() && until > 0 && !first.is_zero() {
        let message = format!("`{word}` ends at 0bit/s: the class would be served {first} once and never again");
        return Err(SpecError::word(word, message).help("give its second piece a rate, as `then 8kbit/s`"));
    }
    let fresh = Runtime::new(&curve).ok_or_else(|| {
        let message = format!("the second rate of `{word}` is too small for what the first one gives");
        SpecError::word(word, message).help("shorten the first piece")
    })?;
    Ok(Some(fresh))
}
