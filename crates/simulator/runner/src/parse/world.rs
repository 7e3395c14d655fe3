//! What there is between two steps: a step that cannot be done is refused before anything runs.

use std::collections::{BTreeMap, BTreeSet};

use ntstatus::NtStatus;

use super::{nearest::nearest, no_device, no_image};
use crate::{
    script::{Action, DeviceKind, Script},
    socket::SocketAction,
};

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    /// A stream that the program has ended.
    Ended,
    Listener,
    Datagrams,
}

impl Kind {
    /// The words of one.
    const fn words(self) -> &'static str {
        match self {
            Self::Stream => "a stream",
            Self::Ended => "a stream that has ended",
            Self::Listener => "for connections that come",
            Self::Datagrams => "for datagrams",
        }
    }
}

/// What there is after the steps so far.
#[derive(Default)]
pub struct World {
    loaded: BTreeSet<String>,
    started: BTreeSet<String>,
    open: BTreeSet<String>,
    pending: BTreeSet<String>,
    sockets: BTreeMap<String, Kind>,
    /// Where it meets other machines, if there are others, in order.
    barriers: Option<Vec<String>>,
}

impl World {
    /// That of one of several machines.
    pub fn of_many() -> Self {
        Self { barriers: Some(Vec::new()), ..Self::default() }
    }

    /// Checks that the step can be done, and notes what it does.
    pub fn check(&mut self, script: &Script, action: &Action, status: NtStatus) -> std::result::Result<(), String> {
        let takes_effect = status.is_success();
        match action {
            Action::Load(image) => {
                script.image(image).ok_or_else(|| format!("`image`: {}", no_image(image, script)))?;
                add(&mut self.loaded, image, takes_effect, "image", "is loaded already")
            }
            Action::Unload(image) => {
                let left =
                    script.devices.iter().find(|device| device.is_of(image) && self.started.contains(&device.name));
                if let Some(device) = left {
                    return Err(format!("`image`: `{image}` has the device `{}`; remove it first", device.name));
                }
                take(&mut self.loaded, image, true, "image", "is not loaded")
            }
            Action::Start(name) => {
                let device = script.device(name).ok_or_else(|| format!("`device`: {}", no_device(name, script)))?;
                let mut images = std::iter::once(&device.image).chain(&device.filters);
                if let Some(image) = images.find(|image| !self.loaded.contains(*image)) {
                    return Err(format!("`device`: the image `{image}` of `{name}` is not loaded"));
                }
                add(&mut self.started, name, takes_effect, "device", "is there already")
            }
            Action::SendFrame { device: name, .. } | Action::ReceiveFrame { device: name, .. } => {
                let kind = script.device(name).map(|device| device.kind);
                if kind.is_some_and(|kind| kind == DeviceKind::PnP) {
                    return Err(format!("`device`: `{name}` is no NIC"));
                }
                take(&mut self.started, name, false, "device", "is not started")
            }
            Action::Restart(name) | Action::Power(name, _) | Action::Interrupt(name, _) => {
                take(&mut self.started, name, false, "device", "is not started")
            }
            Action::Remove(name) => take(&mut self.started, name, takes_effect, "device", "is not started"),
            Action::SurpriseRemove(name) => take(&mut self.started, name, true, "device", "is not started"),
            Action::Open { file, .. } => add(&mut self.open, file, takes_effect, "file", "is open already"),
            Action::Close(file) => take(&mut self.open, file, true, "file", "is not open"),
            Action::Begin { request, file, .. } => {
                take(&mut self.open, file, false, "file", "is not open")?;
                add(&mut self.pending, request, true, "request", "is on its way already")
            }
            Action::Wait { request, .. } => take(&mut self.pending, request, true, "request", "was not begun"),
            Action::Cancel(request) => take(&mut self.pending, request, false, "request", "was not begun"),
            Action::Socket { socket, does } => self.talk(socket, does, takes_effect),
            Action::Unplug if self.barriers.is_none() => {
                Err("a cable is between machines, and the script has no `machine`".to_owned())
            }
            Action::Sleep(_) | Action::Unplug => Ok(()),
            Action::Barrier(name) => match &mut self.barriers {
                None => Err("a barrier is between machines, and the script has no `machine`".to_owned()),
                Some(barriers) if barriers.contains(name) => {
                    Err(format!("`name`: the machine was at the barrier `{name}` before"))
                }
                Some(barriers) => {
                    barriers.push(name.clone());
                    Ok(())
                }
            },
        }
    }
}

impl World {
    /// Checks that a program can do that with a socket, and notes what comes of it.
    fn talk(&mut self, name: &str, does: &SocketAction, takes_effect: bool) -> std::result::Result<(), String> {
        let made = match does {
            SocketAction::Accept(listener) => {
                self.socket("listener", listener, &[Kind::Listener])?;
                Some(Kind::Stream)
            }
            SocketAction::Connect { .. } => Some(Kind::Stream),
            SocketAction::Listen(_) => Some(Kind::Listener),
            SocketAction::Bind(_) => Some(Kind::Datagrams),
            _ => None,
        };
        if let Some(kind) = made {
            if self.sockets.contains_key(name) {
                return Err(format!("`socket`: there is a socket `{name}` already"));
            }
            if takes_effect {
                self.sockets.insert(name.to_owned(), kind);
            }
            return Ok(());
        }
        let streams = [Kind::Stream, Kind::Ended];
        let kind = self.socket(
            "socket",
            name,
            match does {
                SocketAction::Send { to: Some(_), .. } | SocketAction::Receive { from: Some(_), .. } => {
                    &[Kind::Datagrams]
                }
                SocketAction::Send { to: None, .. } | SocketAction::End => &[Kind::Stream],
                SocketAction::Receive { .. } => &[Kind::Stream, Kind::Ended, Kind::Datagrams],
                SocketAction::Abort => &streams,
                _ => &[Kind::Stream, Kind::Ended, Kind::Listener, Kind::Datagrams],
            },
        )?;
        if matches!(does, SocketAction::Receive { expect: None, .. }) && kind == Kind::Datagrams {
            return Err(format!("`expect` is missing: `{name}` is for datagrams, and receiving one cannot fail"));
        }
        if does.ends() {
            self.sockets.remove(name);
        } else if matches!(does, SocketAction::End) {
            self.sockets.insert(name.to_owned(), Kind::Ended);
        }
        Ok(())
    }

    /// A socket that there is, of one of these kinds.
    fn socket(&self, key: &str, name: &str, kinds: &[Kind]) -> std::result::Result<Kind, String> {
        let Some(&kind) = self.sockets.get(name) else {
            let names = self.sockets.keys().map(String::as_str);
            return Err(format!("`{key}`: there is no socket `{name}`{}", nearest(name, names)));
        };
        if kinds.contains(&kind) {
            return Ok(kind);
        }
        let wanted: Vec<&str> = kinds.iter().map(|kind| kind.words()).collect();
        Err(format!("`{key}`: `{name}` is {}, and has to be {}", kind.words(), wanted.join(" or ")))
    }
}

fn add(
    set: &mut BTreeSet<String>,
    name: &str,
    really: bool,
    key: &str,
    otherwise: &str,
) -> std::result::Result<(), String> {
    if set.contains(name) {
        return Err(format!("`{key}`: `{name}` {otherwise}"));
    }
    if really {
        set.insert(name.to_owned());
    }
    Ok(())
}

fn take(
    set: &mut BTreeSet<String>,
    name: &str,
    really: bool,
    key: &str,
    otherwise: &str,
) -> std::result::Result<(), String> {
    if !set.contains(name) {
        return Err(format!("`{key}`: `{name}` {otherwise}"));
    }
    if really {
        set.remove(name);
    }
    Ok(())
}
