//! A script on a machine.

use ntstatus::NtStatus;

use crate::{
    machine::{Control, Machine},
    script::{Action, Script, Step},
};

/// A step that did not end as the script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// The number of the step, from 0.
    pub step: usize,
    /// What was expected, and what was seen.
    pub words: String,
}

/// Carries out a script. `began` hears of each step before it begins.
///
/// # Errors
///
/// The first step that does not end as it has to. The machine is left as it is then; whoever called ends the process.
pub fn drive(script: &Script, machine: &mut impl Machine, mut began: impl FnMut(usize)) -> Result<(), Unexpected> {
    for (number, step) in script.steps.iter().enumerate() {
        began(number);
        carry_out(script, machine, step).map_err(|words| {
            let (action, name) = step.action.words();
            let place = if step.line == 0 { "at the end".to_owned() } else { format!("line {}", step.line) };
            Unexpected { step: number, words: format!("{place}, {action} {name}: {words}") }
        })?;
    }
    Ok(())
}

fn carry_out(script: &Script, machine: &mut impl Machine, step: &Step) -> Result<(), String> {
    let image = |name: &str| script.image(name).ok_or_else(|| format!("there is no image `{name}`"));
    let device = |name: &str| script.device(name).ok_or_else(|| format!("there is no device `{name}`"));
    let outcome = match &step.action {
        Action::Load(name) => machine.load(image(name)?),
        Action::Start(name) => machine.start(device(name)?),
        Action::Restart(name) => machine.restart(device(name)?),
        Action::Power(name, state) => machine.power(device(name)?, *state),
        Action::Remove(name) => machine.remove(device(name)?),
        Action::Open { file, link } => machine.open(file, link),
        Action::Unload(name) => {
            machine.unload(image(name)?);
            Ok(())
        }
        Action::SurpriseRemove(name) => {
            machine.surprise_remove(device(name)?);
            Ok(())
        }
        Action::Close(file) => {
            machine.close(file);
            Ok(())
        }
        Action::Begin { request, file, code, input, output } => {
            let input = input.bytes(|device, name| machine.property(device, name))?;
            machine.begin(request, file, &Control { code: *code, input: &input, output: *output });
            Ok(())
        }
        Action::Cancel(request) => {
            machine.cancel(request);
            Ok(())
        }
        Action::Sleep(microseconds) => {
            machine.sleep(*microseconds);
            Ok(())
        }
        Action::Wait { request, output } => {
            let answer = machine.wait(request);
            // What is waited for at the end only has to end.
            if step.line > 0 {
                same(step.status, answer.status)?;
            }
            let Some(output) = output else { return Ok(()) };
            return output.check(&answer.bytes, |device, name| machine.property(device, name));
        }
    };
    same(step.status, outcome.err().unwrap_or(NtStatus::SUCCESS))
}

fn same(expected: NtStatus, seen: NtStatus) -> Result<(), String> {
    if expected == seen { Ok(()) } else { Err(format!("{} instead of {}", words(seen), words(expected))) }
}

fn words(status: NtStatus) -> String {
    let bits = status.to_bits();
    status.name().map_or_else(|| format!("{bits:#010x}"), |name| format!("{name} ({bits:#x})"))
}
