//! Counted instructions of the data path.

use crate::{
    Context,
    counted::{self, Counts, Limit, Scenario},
    measure::Samples,
    row::{Goal, Row, Unit},
};

/// The rows of this file.
pub fn rows(context: &mut Context<'_>) {
    context.row("counted: instructions", counted);
}

/// Instructions that an arm may cost that finds nothing new.
const ARM_LIMIT: f64 = 40.0;

/// Counted instructions: exact, so there are no rounds.
fn counted(_: &Context<'_>) -> Vec<Row> {
    let counts = counted::count_all();
    let scenarios = Scenario::ALL.into_iter().skip(1);
    let rows = scenarios.map(|scenario| {
        let name = format!("counted: {}", scenario.words());
        let (unit, goal) = (Unit::Instructions, Goal::AtMost(1.0));
        match &counts {
            Ok(counts) => match counts.get(&scenario.name()) {
                Some(count) if scenario == Scenario::ArmNothingNew => {
                    Row::limited(&name, "40 instructions", unit, *count, ARM_LIMIT)
                }
                Some(count) => scenario.limit().map_or_else(
                    || Row::plain(&name, unit, &Samples::new(vec![*count])),
                    |limit| of_another(&name, counts, *count, limit),
                ),
                None => Row::skipped(&name, "", unit, Goal::Reported, "not counted"),
            },
            Err(why) if scenario == Scenario::ArmNothingNew => Row::skipped(&name, "40 instructions", unit, goal, why),
            Err(why) => Row::skipped(&name, "", unit, Goal::Reported, why),
        }
    });
    rows.collect()
}

/// A row of a count beside another.
fn of_another(name: &str, counts: &Counts, count: f64, Limit { of, most, words }: Limit) -> Row {
    let goal = Goal::AtMost(most);
    let Some(peer) = counts.get(&of.name()) else {
        return Row::skipped(name, words, Unit::Instructions, goal, "not counted");
    };
    Row::counted(name, words, goal, count, *peer)
}
