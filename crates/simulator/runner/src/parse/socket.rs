//! Steps of programs that talk over sockets.

use std::net::SocketAddr;

use ntstatus::NtStatus;
use toml::Spanned;

use super::{Result, problem, step::Keys};
use crate::{
    script::{Action, Script},
    socket::SocketAction,
};

/// The words of such steps, besides `close`.
pub const WORDS: &str = "connect, listen, accept, bind, send, receive, end, abort";

/// A step of a program that talks over a socket; `None` if it is another step.
pub fn action(keys: &mut Keys, word: &str, status: NtStatus, script: &Script) -> Result<Option<Action>> {
    let does = match word {
        "connect" => SocketAction::Connect { from: address(keys, "from", script)?, to: needed(keys, "to", script)? },
        "listen" => SocketAction::Listen(needed(keys, "at", script)?),
        "accept" => SocketAction::Accept(keys.text("listener")?),
        "bind" => SocketAction::Bind(needed(keys, "at", script)?),
        "send" => {
            let input = keys.input(script)?;
            SocketAction::Send { input, to: address(keys, "to", script)? }
        }
        "receive" => {
            let (at, expect) = (keys.0.span(), keys.expectation(script)?);
            if expect.is_none() && status.is_success() {
                return problem(at, "`expect` is missing: what has to come, and [] for the end of a stream");
            }
            SocketAction::Receive { expect, from: address(keys, "from", script)? }
        }
        "end" => SocketAction::End,
        "abort" => SocketAction::Abort,
        "close" if keys.0.get_ref().socket.is_some() => SocketAction::Close,
        _ => return Ok(None),
    };
    Ok(Some(Action::Socket { socket: keys.text("socket")?, does }))
}

fn needed(keys: &mut Keys, key: &str, script: &Script) -> Result<SocketAddr> {
    let at = keys.0.span();
    address(keys, key, script)?.map_or_else(|| problem(at, format!("`{key}` is missing: such as \"10.0.0.1:445\"")), Ok)
}

/// An address with a port, where programs of the script can be.
fn address(keys: &mut Keys, key: &str, script: &Script) -> Result<Option<SocketAddr>> {
    let step = keys.0.get_mut();
    let place = match key {
        "from" => &mut step.from,
        "to" => &mut step.to,
        _ => &mut step.at,
    };
    let Some(text) = place.take() else { return Ok(None) };
    let Ok(address) = text.get_ref().parse::<SocketAddr>() else {
        return problem(
            text.span(),
            format!("`{key}` is `{}`: such as `10.0.0.1:445` or `[fd00::1]:445`", text.get_ref()),
        );
    };
    if key == "to" && address.port() == 0 {
        return problem(text.span(), format!("`to` is `{address}`: nobody has the port 0"));
    }
    let is_near = address.ip().is_loopback() || key != "to" && address.ip().is_unspecified();
    if script.kernel.host_datagrams && !is_near {
        return host(key, address, &text);
    }
    Ok(Some(address))
}

fn host<T>(key: &str, address: SocketAddr, text: &Spanned<String>) -> Result<T> {
    let own = if address.is_ipv4() { "127.0.0.1" } else { "[::1]" };
    let words = format!("`{key}` is `{address}`: with `datagrams = \"host\"` drivers and programs are at {own}");
    problem(text.span(), words)
}
