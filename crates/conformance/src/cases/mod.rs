//! The cases, one file for each theme.

mod arm;
mod notify;

use crate::case::Case;

/// All themes, in the order of the report.
const THEMES: &[&[Case]] = &[arm::CASES, notify::CASES];

/// All cases, in the order of the report.
pub fn all() -> impl Iterator<Item = &'static Case> + Clone {
    THEMES.iter().copied().flatten()
}
