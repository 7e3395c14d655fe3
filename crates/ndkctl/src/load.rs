//! Traffic to look at: connections of one adapter with itself and with another, and messages on all of them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use conformance::host::HostPlatform;
use conformance::{
    Check, HELD, Stop, Verdict,
    client::{Connector, Listener, OnDisconnect, Options, Session},
    fixture::{Plan, QP_A, QP_B, Side, Terms},
    platform::Family,
    text::Text,
};
use ndkpi::NDK_VERSION;

/// Connections between the two adapters, and of the first one with itself.
const CONNECTIONS: usize = 6;

/// Two sides that exchange messages.
struct Pair<'s> {
    a: Side<'s>,
    b: Side<'s>,
    _active: Connector<'s>,
    _passive: Connector<'s>,
}

/// Runs traffic until `stop` is set. `ready` is set when all connections are made.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(platform: &HostPlatform, stop: &AtomicBool, ready: &AtomicBool) -> Result<(), String> {
    let options = Options { name: "load", version: NDK_VERSION::V2_0, seed: 1, hostile: false };
    match Session::with(platform, &options, |session| exchange(session, stop, ready)) {
        Ok(_) => Ok(()),
        Err(Stop::Failed(text) | Stop::Skipped(text)) => Err(text.to_string()),
    }
}

fn exchange<'s>(s: &'s Session<'s>, stop: &AtomicBool, ready: &AtomicBool) -> Verdict {
    let (to_other, to_itself) = (listener(s, 1)?, listener(s, 0)?);
    let mut pairs = Vec::new();
    for number in 0..CONNECTIONS {
        pairs.push(connect(s, if number % 2 == 0 { &to_other } else { &to_itself }, u32::from(number % 2 == 0))?);
    }
    ready.store(true, Relaxed);
    let mut context = 0_usize;
    while !stop.load(Relaxed) {
        for (number, pair) in pairs.iter().enumerate() {
            context += 1;
            let length = 1 << (6 + 2 * number);
            pair.b.receive(context, 0, length)?;
            pair.a.send(context, 0, length, 0)?;
            pair.a.write(context, 0, length, pair.b.remote(0), 0)?;
            pair.b.read(context, 0, length, pair.a.remote(0), 0)?;
            pair.b.receive_done(context)?;
            pair.a.initiator_done(context)?;
            pair.a.initiator_done(context)?;
            pair.b.initiator_done(context)?;
        }
    }
    HELD
}

fn listener<'s>(s: &'s Session<'s>, adapter: u32) -> Check<Listener<'s>> {
    let on = if adapter == 0 { s.adapter()? } else { s.second_adapter()? };
    let listener = on.create_listener(None)?;
    listener.core().listen(s.address(adapter, Family::V4, 0)?)?.succeeds()?;
    Ok(listener)
}

/// Connects the first adapter with `peer` over its listener.
fn connect<'s>(s: &'s Session<'s>, listener: &Listener<'s>, peer: u32) -> Check<Pair<'s>> {
    let on = if peer == 0 { s.adapter()? } else { s.second_adapter()? };
    let plan = Plan { bytes: 1 << 17, ..Plan::new() };
    let (a, b) = (Side::new(&s.adapter()?, &plan, QP_A)?, Side::new(&on, &plan, QP_B)?);
    let active = s.adapter()?.create_connector()?;
    let offer = Terms::new().a;
    let from = s.address(0, Family::V4, 0)?;
    let connecting = active.core().connect(a.qp.core(), from, listener.address()?, &offer)?;
    let passive = listener.take()?;
    let accepting = passive.core().accept(b.qp.core(), &offer, OnDisconnect::Nothing)?;
    connecting.succeeds()?;
    active.core().complete_connect(OnDisconnect::Nothing)?.succeeds()?;
    accepting.succeeds()?;
    Ok(Pair { a, b, _active: active, _passive: passive })
}

/// Runs `look` again and again beside the traffic, until it says that it has seen enough or somebody interrupts.
///
/// # Errors
///
/// The reason, in one line.
pub fn beside(
    interrupted: &AtomicBool,
    mut look: impl FnMut(&HostPlatform) -> Result<bool, String>,
) -> Result<(), String> {
    let setup = conformance::host::Setup { adapters: 2, ..conformance::host::Setup::default() };
    let platform = HostPlatform::start(setup).map_err(|status| format!("no adapters: {status}"))?;
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| run(&platform, &stop, &ready));
        while !ready.load(Relaxed) && !traffic.is_finished() {
            std::thread::yield_now();
        }
        let mut seen = Ok(());
        while !traffic.is_finished() && !interrupted.load(Relaxed) {
            match look(&platform) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    seen = Err(error);
                    break;
                }
            }
        }
        stop.store(true, Relaxed);
        let traffic = traffic.join().unwrap_or_else(|_| Err("the traffic panicked".to_owned()));
        seen.and(traffic)
    });
    platform.finish().map_err(|left| Text::new(format_args!("left behind: {left}")).to_string())?;
    result
}
