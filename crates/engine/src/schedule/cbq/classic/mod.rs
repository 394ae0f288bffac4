//! Classic CBQ.

use super::super::{Context, Scheduler};
use crate::settings::Settings;
use crate::spec::SpecError;

/// Makes one.
pub fn build(_context: &Context, _settings: &Settings) -> Result<Box<dyn Scheduler>, SpecError> {
    Err(SpecError::new("not built yet"))
}
