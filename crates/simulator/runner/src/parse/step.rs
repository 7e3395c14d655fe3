//! A step, from its keys to what it does.

use ntstatus::NtStatus;
use toml::{Spanned, Value};

use super::{
    Result, in_range,
    part::{MOST_BYTES, parts},
    problem, socket,
};
use crate::{
    bytes::{Pattern, Template},
    raw,
    script::{Action, Asks, INTERFACE, Script},
    socket::SocketAction,
    status,
};

/// A step on its way to an action: what is taken out is allowed, what is left at the end is not.
pub struct Keys(pub Spanned<raw::Step>);

impl Keys {
    pub fn text(&mut self, key: &str) -> Result<String> {
        let at = self.0.span();
        let step = self.0.get_mut();
        let place = match key {
            "image" => &mut step.image,
            "device" => &mut step.device,
            "file" => &mut step.file,
            "link" => &mut step.link,
            "state" => &mut step.state,
            "name" => &mut step.name,
            "socket" => &mut step.socket,
            "listener" => &mut step.listener,
            _ => &mut step.request,
        };
        place.take().map_or_else(|| problem(at, format!("`{key}` is missing")), |text| Ok(text.into_inner()))
    }

    /// What the step does. A plain `ioctl` is two things: it begins a request and waits for it.
    pub fn actions(mut self, script: &Script) -> Result<Vec<(Action, NtStatus)>> {
        let at = self.0.span();
        let Some(action) = self.0.get_mut().action.take() else { return problem(at, "`do` is missing") };
        let status = self.status()?;
        let mut before = Vec::new();
        let of_socket = socket::action(&mut self, action.get_ref(), status, script)?;
        let last = match of_socket {
            Some(of_socket) => of_socket,
            None => self.other(&action, script, &mut before)?,
        };
        let always_succeeds = matches!(
            last,
            Action::Unload(_) | Action::SurpriseRemove(_) | Action::Close(_) | Action::Begin { .. }
        ) || matches!(
            last,
            Action::Cancel(_) | Action::Sleep(_) | Action::Barrier(_) | Action::Unplug
        ) || matches!(&last, Action::Socket { does, .. } if does.ends() || matches!(does, SocketAction::Accept(_)));
        if always_succeeds && status != NtStatus::SUCCESS {
            return problem(at, format!("`status`: `{}` has none", action.get_ref()));
        }
        self.nothing_left(action.get_ref())?;
        before.push((last, status));
        Ok(before)
    }

    /// What a step does that is none of a socket's. What it has to do before is put in front.
    fn other(
        &mut self,
        action: &Spanned<String>,
        script: &Script,
        before: &mut Vec<(Action, NtStatus)>,
    ) -> Result<Action> {
        let at = self.0.span();
        Ok(match action.get_ref().as_str() {
            "load" => Action::Load(self.text("image")?),
            "unload" => Action::Unload(self.text("image")?),
            "start" => Action::Start(self.text("device")?),
            "restart" => Action::Restart(self.text("device")?),
            "interrupt" => Action::Interrupt(self.text("device")?, self.message()?),
            "power" => Action::Power(self.text("device")?, self.power_state()?),
            "send-frame" => {
                let input = self.input(script)?;
                Action::SendFrame { device: self.text("device")?, input }
            }
            "receive-frame" => {
                let Some(expect) = self.expectation(script)? else { return problem(at, "`expect` is missing") };
                Action::ReceiveFrame { device: self.text("device")?, expect }
            }
            "remove" => Action::Remove(self.text("device")?),
            "surprise-remove" => Action::SurpriseRemove(self.text("device")?),
            "open" => Action::Open { file: self.text("file")?, link: self.link(script)?, path: self.path()? },
            "close" => Action::Close(self.text("file")?),
            "begin" | "begin-read" | "begin-write" => {
                let request = self.text("request")?;
                self.begin(script, asks(action.get_ref()), request)?
            }
            "ioctl" | "read" | "write" => {
                // A name that no script can give.
                let request = format!("{}@{}", action.get_ref(), at.start);
                before.push((self.begin(script, asks(action.get_ref()), request.clone())?, NtStatus::SUCCESS));
                Action::Wait { request, output: self.expectation(script)? }
            }
            "wait" => Action::Wait { request: self.text("request")?, output: self.expectation(script)? },
            "cancel" => Action::Cancel(self.text("request")?),
            "sleep" => {
                let Some(time) = self.0.get_mut().microseconds.take() else {
                    return problem(at, "`microseconds` is missing");
                };
                Action::Sleep(in_range(&time, "microseconds", 0, 3_600_000_000)?)
            }
            "barrier" => {
                let at = self.0.get_ref().name.as_ref().map(Spanned::span);
                let name = self.text("name")?;
                if name.is_empty() {
                    return problem(at.unwrap_or_else(|| self.0.span()), "`name` of a barrier is empty");
                }
                Action::Barrier(name)
            }
            "unplug" => Action::Unplug,
            other => {
                let words = "load, unload, start, restart, interrupt, power, send-frame, receive-frame, remove, surprise-remove, open, \
                             close, ioctl, read, write, begin, begin-read, begin-write, wait, cancel, sleep, barrier, unplug";
                return problem(action.span(), format!("`do` is `{other}`: {words}, {}", socket::WORDS));
            }
        })
    }

    /// The name that a device is opened by: a symbolic link, or the interface of a device of the script.
    fn link(&mut self, script: &Script) -> Result<String> {
        let at = self.0.get_ref().link.as_ref().map_or_else(|| self.0.span(), Spanned::span);
        let link = self.text("link")?;
        match link.strip_suffix(INTERFACE) {
            Some(device) if !link.contains('\\') && script.device(device).is_none() => {
                problem(at, format!("`link`: there is no device `{device}`"))
            }
            _ => Ok(link),
        }
    }

    /// The name of a file on the device, with a backslash in front.
    fn path(&mut self) -> Result<String> {
        let Some(path) = self.0.get_mut().path.take() else { return Ok(String::new()) };
        let below = path.get_ref().strip_prefix('\\').unwrap_or(path.get_ref());
        if below.is_empty() {
            return problem(path.span(), "`path` is empty: leave it out to open the device itself");
        }
        Ok(format!("\\{below}"))
    }

    /// The number of a message, which is the first without one.
    fn message(&mut self) -> Result<u32> {
        let message = self.0.get_mut().message.take();
        message.map_or(Ok(0), |message| in_range(&message, "message", 0, i64::from(u32::MAX)))
    }

    fn power_state(&mut self) -> Result<u8> {
        let at = self.0.get_ref().state.as_ref().map_or_else(|| self.0.span(), Spanned::span);
        let state = self.text("state")?;
        let number = ["D0", "D1", "D2", "D3"].iter().position(|name| *name == state);
        let number = number.and_then(|number| u8::try_from(number).ok());
        number.map_or_else(|| problem(at, format!("`state` is `{state}`: D0, D1, D2 or D3")), Ok)
    }

    fn status(&mut self) -> Result<NtStatus> {
        let Some(status) = self.0.get_mut().status.take() else { return Ok(NtStatus::SUCCESS) };
        let known = match status.get_ref() {
            Value::Integer(bits) => u32::try_from(*bits).ok().map(NtStatus::from_bits),
            Value::String(name) => status::named(name),
            _ => None,
        };
        let words = || format!("`status` is {}: a name such as \"STATUS_CANCELLED\", or a number", status.get_ref());
        known.map_or_else(|| problem(status.span(), words()), Ok)
    }

    fn begin(&mut self, script: &Script, asks: Asks, request: String) -> Result<Action> {
        let at = self.0.span();
        let file = self.text("file")?;
        let step = self.0.get_mut();
        let code = match asks {
            Asks::Control => {
                let Some(code) = step.code.take() else { return problem(at, "`code` is missing") };
                in_range(&code, "code", 0, i64::from(u32::MAX))?
            }
            Asks::Read if step.output.is_none() => return problem(at, "`output` is missing"),
            Asks::Write if step.input.is_none() => return problem(at, "`input` is missing"),
            Asks::Read | Asks::Write => 0,
        };
        // What has no meaning for the kind of request is left, and refused at the end.
        let output = if asks == Asks::Write { None } else { step.output.take() };
        let most = i64::try_from(MOST_BYTES).unwrap_or(i64::MAX);
        let output = output.map_or(Ok(0), |output| in_range(&output, "output", 0, most))?;
        let input = if asks == Asks::Read { None } else { step.input.take() };
        let input = input.map_or(Ok(Vec::new()), |input| parts(&input, "input", script))?;
        let offset = if asks == Asks::Control { None } else { step.offset.take() };
        let offset = offset.map_or(Ok(0), |offset| in_range(&offset, "offset", 0, i64::MAX))?;
        Ok(Action::Begin { request, file, asks, code, input: Template(input), output, offset })
    }

    /// What is sent by a step that sends nothing else.
    pub fn input(&mut self, script: &Script) -> Result<Template> {
        let at = self.0.span();
        let Some(input) = self.0.get_mut().input.take() else { return problem(at, "`input` is missing") };
        Ok(Template(parts(&input, "input", script)?))
    }

    pub fn expectation(&mut self, script: &Script) -> Result<Option<Pattern>> {
        let expected = self.0.get_mut().expect.take();
        expected.map(|expected| Ok(Pattern(parts(&expected, "expect", script)?))).transpose()
    }

    /// Refuses keys that mean nothing in this step.
    fn nothing_left(&self, action: &str) -> Result<()> {
        let step = self.0.get_ref();
        let span = |value: &Option<Spanned<String>>| value.as_ref().map(Spanned::span);
        let number = |value: &Option<Spanned<i64>>| value.as_ref().map(Spanned::span);
        let left = [
            ("image", span(&step.image)),
            ("device", span(&step.device)),
            ("file", span(&step.file)),
            ("link", span(&step.link)),
            ("path", span(&step.path)),
            ("request", span(&step.request)),
            ("state", span(&step.state)),
            ("name", span(&step.name)),
            ("socket", span(&step.socket)),
            ("listener", span(&step.listener)),
            ("at", span(&step.at)),
            ("from", span(&step.from)),
            ("to", span(&step.to)),
            ("code", number(&step.code)),
            ("output", number(&step.output)),
            ("offset", number(&step.offset)),
            ("message", number(&step.message)),
            ("microseconds", number(&step.microseconds)),
            ("input", step.input.as_ref().map(Spanned::span)),
            ("expect", step.expect.as_ref().map(Spanned::span)),
        ];
        let first = left.into_iter().find_map(|(key, at)| Some((key, at?)));
        first.map_or(Ok(()), |(key, at)| problem(at, format!("`{key}` means nothing for `{action}`")))
    }
}

/// What a word of a script asks for.
fn asks(word: &str) -> Asks {
    match word.trim_start_matches("begin-") {
        "read" => Asks::Read,
        "write" => Asks::Write,
        _ => Asks::Control,
    }
}
