//! A script on a machine.

use std::collections::BTreeSet;

use ntstatus::NtStatus;

use crate::{
    bytes::Pattern,
    machine::{Control, Machine},
    script::{Action, Asks, Device, Image, Script, Step},
    socket::SocketAction,
    status::words,
};

/// A step that did not end as the script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// The number of the step, from 0.
    pub step: usize,
    /// What was expected, and what was seen.
    pub words: String,
}

/// Carries out a script in the run with that seed. `began` hears of each step before it begins.
///
/// Once something was made to fail (`Machine::failures`), steps may end otherwise than the script says, and steps that need what is not
/// there are left out. What broken rules there are the machine says.
///
/// # Errors
///
/// The first step that does not end as it has to. The machine is left as it is then; whoever called ends the process.
pub fn drive(
    script: &Script,
    seed: u64,
    machine: &mut impl Machine,
    mut began: impl FnMut(usize),
) -> Result<(), Unexpected> {
    for entry in &script.files {
        let put = machine.put_file(&entry.path, entry.bytes.as_deref());
        put.map_err(|status| Unexpected { step: 0, words: format!("the file {}: {status}", entry.path) })?;
    }
    let mut drive = Drive { script, seed, machine, there: BTreeSet::new(), untold: BTreeSet::new() };
    for (number, step) in script.steps.iter().enumerate() {
        began(number);
        if drive.lacks(&step.action) && drive.machine.failures() > 0 {
            continue;
        }
        match drive.carry_out(step) {
            Err(words) if drive.machine.failures() == 0 => {
                let (action, name) = step.action.words();
                let place = if step.line == 0 { "at the end".to_owned() } else { format!("line {}", step.line) };
                return Err(Unexpected { step: number, words: format!("{place}, {action} {name}: {words}") });
            }
            _ => {}
        }
    }
    Ok(())
}

/// What a step needs or makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing<'script> {
    Image(&'script str),
    Device(&'script str),
    File(&'script str),
    Request(&'script str),
    Socket(&'script str),
}

struct Drive<'run, M> {
    script: &'run Script,
    seed: u64,
    machine: &'run mut M,
    /// What there is.
    there: BTreeSet<Thing<'run>>,
    /// Images that are loaded and have had no device yet.
    untold: BTreeSet<&'run str>,
}

impl<'run, M: Machine> Drive<'run, M> {
    /// Returns true if something is not there that the step needs.
    fn lacks(&self, action: &'run Action) -> bool {
        let needed = match action {
            Action::Load(_) | Action::Open { .. } | Action::Sleep(_) | Action::Barrier(_) | Action::Unplug => {
                return false;
            }
            Action::Unload(name) => Thing::Image(name),
            Action::Start(name) => match self.script.device(name) {
                Some(device) if device.filters.iter().all(|filter| self.there.contains(&Thing::Image(filter))) => {
                    Thing::Image(&device.image)
                }
                Some(_) | None => return true,
            },
            Action::Restart(name)
            | Action::Power(name, _)
            | Action::Interrupt(name, _)
            | Action::Remove(name)
            | Action::SurpriseRemove(name)
            | Action::SendFrame { device: name, .. }
            | Action::ReceiveFrame { device: name, .. } => Thing::Device(name),
            Action::Close(file) | Action::Begin { file, .. } => Thing::File(file),
            Action::Wait { request, .. } | Action::Cancel(request) => Thing::Request(request),
            Action::Socket { does: SocketAction::Accept(listener), .. } => Thing::Socket(listener),
            Action::Socket { does, .. } if does.makes() => return false,
            Action::Socket { socket, .. } => Thing::Socket(socket),
        };
        !self.there.contains(&needed)
    }

    /// Notes something that there is now, or that there is not.
    fn note(&mut self, thing: Thing<'run>, outcome: Result<(), NtStatus>) -> NtStatus {
        match outcome {
            Ok(()) => {
                self.there.insert(thing);
                NtStatus::SUCCESS
            }
            Err(status) => status,
        }
    }

    /// Tells a driver whose first device was just started what the script has for it. Where something was made to fail, so may this.
    fn tell(&mut self, image: &Image) -> Result<(), String> {
        // No name of a script has a space.
        const FILE: &str = "the driver";
        for ioctl in &image.ioctls {
            let asked = if let Err(refused) = self.machine.open(FILE, &ioctl.link, "") {
                refused
            } else {
                let input = ioctl.input_for(self.seed);
                self.machine.begin(
                    FILE,
                    FILE,
                    &Control { asks: Asks::Control, code: ioctl.code, input: &input, output: 0, offset: 0 },
                );
                let status = self.machine.wait(FILE).status;
                self.machine.close(FILE);
                status
            };
            if !asked.is_success() && self.machine.failures() == 0 {
                return Err(format!("control code {:#x} to {}: {}", ioctl.code, ioctl.link, words(asked)));
            }
        }
        Ok(())
    }

    /// Waits for a frame, and compares it if there has to be one.
    fn receive_frame(&mut self, device: &Device, expect: &Pattern, wanted: NtStatus) -> Result<NtStatus, String> {
        let received = self.machine.receive_frame(device);
        if let (Ok(frame), true) = (&received, wanted.is_success()) {
            expect.check(frame, |device, name| self.machine.property(device, name))?;
        }
        Ok(status_of(received.map(drop)))
    }

    /// A program talks over a socket.
    fn talk(&mut self, socket: &'run str, does: &'run SocketAction, wanted: NtStatus) -> Result<(), String> {
        let seen = does.carry_out(self.machine, socket, wanted)?;
        if does.makes() && seen.is_success() {
            self.there.insert(Thing::Socket(socket));
        } else if does.ends() {
            self.there.remove(&Thing::Socket(socket));
        }
        same(wanted, seen).map_err(|words| match does.advice(seen, self.machine) {
            Some(advice) => format!("{words}: {advice}"),
            None => words,
        })
    }

    fn carry_out(&mut self, step: &'run Step) -> Result<(), String> {
        let script = self.script;
        let image = |name: &str| script.image(name).ok_or_else(|| format!("there is no image `{name}`"));
        let device = |name: &str| script.device(name).ok_or_else(|| format!("there is no device `{name}`"));
        let seen = match &step.action {
            Action::Load(name) => {
                let outcome = self.machine.load(image(name)?);
                if outcome.is_ok() {
                    self.untold.insert(name);
                }
                self.note(Thing::Image(name), outcome)
            }
            Action::Start(name) => {
                let device = device(name)?;
                let outcome = self.machine.start(device);
                if outcome.is_ok() && self.untold.remove(device.image.as_str()) {
                    self.tell(image(&device.image)?)?;
                }
                self.note(Thing::Device(name), outcome)
            }
            Action::Open { file, link, path } => {
                let outcome = self.machine.open(file, link, path);
                self.note(Thing::File(file), outcome)
            }
            Action::Restart(name) => status_of(self.machine.restart(device(name)?)),
            Action::Interrupt(name, message) => status_of(self.machine.interrupt(device(name)?, *message)),
            Action::Power(name, state) => status_of(self.machine.power(device(name)?, *state)),
            Action::Remove(name) => {
                let outcome = self.machine.remove(device(name)?);
                if outcome.is_ok() {
                    self.there.remove(&Thing::Device(name));
                }
                status_of(outcome)
            }
            Action::Unload(name) => {
                let image = image(name)?;
                // Only after a failure: a removal that was refused.
                for device in script.devices.iter().filter(|device| device.is_of(&image.name)) {
                    if self.there.remove(&Thing::Device(&device.name)) {
                        self.machine.surprise_remove(device);
                    }
                }
                self.machine.unload(image);
                self.there.remove(&Thing::Image(name));
                NtStatus::SUCCESS
            }
            Action::SurpriseRemove(name) => {
                self.machine.surprise_remove(device(name)?);
                self.there.remove(&Thing::Device(name));
                NtStatus::SUCCESS
            }
            Action::Close(file) => {
                self.machine.close(file);
                self.there.remove(&Thing::File(file));
                NtStatus::SUCCESS
            }
            Action::Begin { request, file, asks, code, input, output, offset } => {
                let input = input.bytes(|device, name| self.machine.property(device, name))?;
                self.machine.begin(
                    request,
                    file,
                    &Control { asks: *asks, code: *code, input: &input, output: *output, offset: *offset },
                );
                self.there.insert(Thing::Request(request));
                NtStatus::SUCCESS
            }
            Action::Cancel(request) => {
                self.machine.cancel(request);
                NtStatus::SUCCESS
            }
            Action::Sleep(microseconds) => {
                self.machine.sleep(*microseconds);
                NtStatus::SUCCESS
            }
            Action::Barrier(name) => {
                self.machine.meet(name);
                NtStatus::SUCCESS
            }
            Action::SendFrame { device: name, input } => {
                let frame = input.bytes(|device, name| self.machine.property(device, name))?;
                status_of(self.machine.send_frame(device(name)?, &frame))
            }
            Action::ReceiveFrame { device: name, expect } => self.receive_frame(device(name)?, expect, step.status)?,
            Action::Unplug => {
                self.machine.unplug();
                NtStatus::SUCCESS
            }
            Action::Socket { socket, does } => return self.talk(socket, does, step.status),
            Action::Wait { request, output } => {
                let answer = self.machine.wait(request);
                self.there.remove(&Thing::Request(request));
                // What is waited for at the end only has to end.
                if step.line > 0 {
                    same(step.status, answer.status)?;
                }
                let Some(output) = output else { return Ok(()) };
                return output.check(&answer.bytes, |device, name| self.machine.property(device, name));
            }
        };
        same(step.status, seen)
    }
}

fn status_of(outcome: Result<(), NtStatus>) -> NtStatus {
    outcome.err().unwrap_or(NtStatus::SUCCESS)
}

fn same(expected: NtStatus, seen: NtStatus) -> Result<(), String> {
    if expected == seen { Ok(()) } else { Err(format!("{} instead of {}", words(seen), words(expected))) }
}
