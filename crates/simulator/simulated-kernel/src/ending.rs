//! What messages say at their end.

use host::machine::current_irql;

use crate::{
    drivers::Drivers,
    faults::Faults,
    findings::Findings,
    recordings::Recordings,
    running::{self, DriverId},
    sites::site_in_words,
    state::glance,
};

/// What a message says at its end: what runs, injected failures, the seed, and what the adviser has said before. A recording is written
/// before that, for this is the end of the process.
pub fn ending() -> String {
    let unwritten = glance(|state| state.part::<Recordings>().write().err());
    let unwritten = unwritten.map_or_else(String::new, |error| format!("; the recording was not written: {error}"));
    let (driver, routine) = running::driver_and_routine();
    let place = if routine.is_empty() {
        String::new()
    } else {
        let site = site_in_words(running::current_site());
        format!("; in {routine}{}, at {}{site}", driver_in_words(driver), current_irql())
    };
    let failed = glance(|state| Some(state.part::<Faults>().has_struck())).unwrap_or(false);
    let failed = if failed { "; after an injected failure" } else { "" };
    let seed = glance(|state| state.seed).map_or_else(String::new, |seed| format!("; the seed is {seed}"));
    let advice = glance(|state| Some(state.part::<Findings>().to_string())).unwrap_or_default();
    format!("{place}{failed}{seed}{advice}{unwritten}")
}

/// Whose code it is.
fn driver_in_words(driver: DriverId) -> String {
    if driver == running::NOBODY {
        return String::new();
    }
    let name = glance(|state| state.part::<Drivers>().name_for_message(driver));
    name.map_or_else(|| format!(" of driver {}", driver.0), |name| format!(" of driver {name}"))
}
