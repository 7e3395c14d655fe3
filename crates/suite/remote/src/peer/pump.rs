//! The pump: fetches events of the other machine, and makes their callbacks.

use alloc::boxed::Box;
use core::{
    ptr,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use fallible::Arc;
use ndkpi::{NDK_CONNECTOR, NDK_OBJECT_TYPE, NtStatus};
use zerocopy::FromBytes;

use super::{
    connecting::CONNECTOR,
    link::{Ends, Excuse, Known, Link},
    proxy::{Own, Proxy, call_close, share},
};
use crate::{
    table::Table,
    wire::{Call, Event, Function, Happened},
};

/// What one round of the pump does.
pub fn round(link: &Arc<Link>) -> Result<bool, NtStatus> {
    let ends = link.ends().ok_or(NtStatus::DEVICE_NOT_READY)?;
    close_what_waits(link);
    if let Some(status) = link.dead() {
        end_all(link, &ends, status);
        if link.known.lock(ends.platform()).is_empty() {
            return Err(status);
        }
        ends.platform().sleep(1_000);
        return Ok(!link.ended.load(Acquire));
    }
    if link.ended.load(Acquire) {
        return Ok(false);
    }
    let Ok(answer) = Call::try_new(Function::Events, 0).and_then(|mut call| link.send(&mut call)) else {
        // The next round finds the channel dead, if it is that.
        ends.platform().sleep(1_000);
        return Ok(true);
    };
    let Ok(events) = <[Event]>::ref_from_bytes(answer.tail()) else {
        link.die(NtStatus::INTERNAL_ERROR);
        return Ok(true);
    };
    for event in events {
        deliver(link, &ends, event);
    }
    if answer.word(1) != 0 {
        link.excuse(Excuse::NoMemory);
    }
    link.delivered.store(answer.word(0), Release);
    Ok(!link.ended.load(Acquire))
}

/// Calls the closes that were begun where nobody may wait, or completes them if the channel is dead.
fn close_what_waits(link: &Link) {
    let mut proxy = link.closing.swap(ptr::null_mut(), AcqRel);
    let mut oldest: *mut Proxy = ptr::null_mut();
    while !proxy.is_null() {
        // SAFETY: the proxy came out of the list of those that are being closed, and is in no other.
        let next = unsafe { (*proxy).next.swap(oldest, Relaxed) };
        oldest = proxy;
        proxy = next;
    }
    while !oldest.is_null() {
        // SAFETY: the proxy is in this list alone, and nobody else has that.
        let (next, cookie) = unsafe { ((*oldest).next.load(Relaxed), (*oldest).cookie()) };
        // SAFETY: its close has begun and was not carried out.
        if unsafe { call_close(link, oldest) }.is_err() {
            closed(link, cookie);
        }
        oldest = next;
    }
}

/// Ends what pends, with the status of the channel.
fn end_all(link: &Link, ends: &Ends<'_>, status: NtStatus) {
    let is_open = |known: &Known| match known {
        Known::Request(_) => true,
        // SAFETY: the proxy is in the table, so nobody has freed it.
        Known::Object(proxy) => unsafe { !(**proxy).is_made() || (**proxy).closes() && !(**proxy).is_closed() },
    };
    loop {
        let mut known = link.known.lock(ends.platform());
        let Some(cookie) = known.iter().find(|(_, known)| is_open(known)).map(|(cookie, _)| cookie) else { return };
        match known.get(cookie) {
            Some(Known::Request(_)) => {
                let Some(Known::Request(pending)) = known.remove(cookie) else { return };
                drop(known);
                // SAFETY: whoever takes a request out of the table makes its completion.
                unsafe { pending.complete(link, status, 0) };
            }
            // SAFETY: the proxy is in the table, so nobody has freed it.
            Some(Known::Object(proxy)) if unsafe { (**proxy).is_made() } => {
                drop(known);
                closed(link, cookie);
            }
            _ => {
                drop(known);
                created(link, cookie, status, 0);
            }
        }
    }
}

/// The proxy of a number.
fn object(link: &Link, ends: &Ends<'_>, cookie: u64) -> Option<*mut Proxy> {
    match link.known.lock(ends.platform()).get(cookie) {
        Some(Known::Object(proxy)) => Some(*proxy),
        _ => None,
    }
}

/// Makes the callback of an event. One that is about nothing is left out.
fn deliver(link: &Arc<Link>, ends: &Ends<'_>, event: &Event) {
    let (cookie, value) = (event.cookie.get(), event.value.get());
    let status = NtStatus::from_bits(event.status.get());
    match Happened::from_number(event.happened.get()) {
        Some(Happened::Created) => created(link, cookie, status, value),
        Some(Happened::Requested) => {
            let pending = {
                let mut known = link.known.lock(ends.platform());
                let is_it = matches!(known.get(cookie), Some(Known::Request(_)));
                if is_it { known.remove(cookie) } else { None }
            };
            if let Some(Known::Request(pending)) = pending {
                // SAFETY: whoever takes a request out of the table makes its completion.
                unsafe { pending.complete(link, status, value) };
            }
        }
        Some(Happened::Closed) => closed(link, cookie),
        Some(Happened::Notified) => {
            if let Some(Own::Notify(callback, context)) = own(link, ends, cookie) {
                // SAFETY: the consumer gave the callback and its context for this object, whose close has not completed.
                unsafe { callback(context, status) };
            }
        }
        Some(Happened::Connected) => connected(link, ends, cookie, status, value),
        Some(Happened::Disconnected) => match own(link, ends, cookie) {
            // SAFETY: as for a notification.
            Some(Own::Disconnect(callback, context)) => unsafe { callback(context) },
            // SAFETY: as for a notification.
            Some(Own::DisconnectEx(callback, context)) => unsafe { callback(context, value as u32) },
            _ => {}
        },
        None => {}
    }
}

/// The own callback of an object.
fn own(link: &Link, ends: &Ends<'_>, cookie: u64) -> Option<Own> {
    let proxy = object(link, ends, cookie)?;
    // SAFETY: only the pump frees a proxy that is made.
    Some(*unsafe { (*proxy).own() }.lock(ends.platform()))
}

/// A creation that pended has ended.
fn created(link: &Link, cookie: u64, status: NtStatus, handle: u64) {
    let Some(ends) = link.ends() else { return };
    let mut known = link.known.lock(ends.platform());
    let Some(Known::Object(proxy)) = known.get(cookie) else { return };
    let proxy = *proxy;
    // SAFETY: the proxy is in the table, so nobody has freed it.
    let (is_made, creation) = unsafe { ((*proxy).is_made(), (*proxy).creation()) };
    let Some((completion, context)) = creation.filter(|_| !is_made) else { return };
    if status.is_success() {
        // SAFETY: the proxy is in the table, which is locked.
        unsafe { (*proxy).set_made(handle) };
        drop(known);
        // SAFETY: the consumer gave the callback and its context for this creation, which ends once.
        unsafe { completion(context, status, proxy.cast()) };
        return;
    }
    known.remove(cookie);
    drop(known);
    // SAFETY: the consumer gave the callback and its context for this creation, which ends once.
    unsafe { completion(context, status, ptr::null_mut()) };
    // SAFETY: the proxy came from a box, and was taken out of the only place that knew it.
    drop(unsafe { Box::from_raw(proxy) });
}

/// The close of an object has ended on the other machine. Its completion is made now, or after those of the successors that are still
/// to be made here (`NDKPI 7.9`): closes that do not pend there are not told in their order.
fn closed(link: &Link, cookie: u64) {
    let Some(ends) = link.ends() else { return };
    let proxy = {
        let mut known = link.known.lock(ends.platform());
        let Some(Known::Object(proxy)) = known.get(cookie) else { return };
        let proxy = *proxy;
        // SAFETY: the proxy is in the table, so nobody has freed it.
        if !unsafe { (*proxy).closes() } {
            return;
        }
        // SAFETY: the proxy is in the table, which is locked.
        unsafe { (*proxy).set_closed() };
        if has_successor(&known, cookie) {
            return;
        }
        known.remove(cookie);
        proxy
    };
    link.tokens.lock(ends.platform()).retain(|token| token.region != cookie);
    // SAFETY: the close has begun. The proxy came from a box, and was taken out of the only place that knew it.
    let (ending, proxy) = unsafe { ((*proxy).ending(), Box::from_raw(proxy)) };
    let antecedents = proxy.antecedents();
    drop(proxy);
    // SAFETY: the object is closed, and nobody else has taken it out of the table.
    unsafe { ending.complete() };
    // No deeper than the successors go: a connector, its queue pair, the shared queue of that, its protection domain.
    for antecedent in antecedents.into_iter().filter(|cookie| waits(link, &ends, *cookie)) {
        closed(link, antecedent);
    }
}

/// Returns true if an object is being closed that depends on that of the number.
fn has_successor(known: &Table<Known>, cookie: u64) -> bool {
    known.iter().any(|(_, known)| match known {
        // SAFETY: the proxy is in the table, so nobody has freed it.
        Known::Object(proxy) => unsafe { (**proxy).closes() && (**proxy).antecedents().contains(&cookie) },
        Known::Request(_) => false,
    })
}

/// Returns true if a close has ended on the other machine, and waits only for what has been completed by now.
fn waits(link: &Link, ends: &Ends<'_>, cookie: u64) -> bool {
    let known = link.known.lock(ends.platform());
    match known.get(cookie) {
        Some(Known::Object(proxy)) => {
            // SAFETY: the proxy is in the table, so nobody has freed it.
            let is_closed = unsafe { (**proxy).is_closed() };
            is_closed && !has_successor(&known, cookie)
        }
        _ => false,
    }
}

/// A connection has come to a listener.
fn connected(link: &Arc<Link>, ends: &Ends<'_>, cookie: u64, status: NtStatus, handle: u64) {
    if !status.is_success() {
        link.excuse(Excuse::NoMemory);
        return;
    }
    if let Some(Own::Connect(callback, context)) = own(link, ends, cookie)
        && let Some(connector) = came_from(link, ends, cookie, handle)
    {
        // SAFETY: the consumer gave the callback and its context for this listener, whose close has not completed.
        unsafe { callback(context, connector.cast::<NDK_CONNECTOR>()) };
        return;
    }
    // There is nobody to have it, or no memory: it is refused.
    link.excuse(Excuse::NoMemory);
    let _ = Call::try_new(Function::Close, handle).and_then(|mut call| link.send(&mut call));
}

/// A proxy for a connector that has come from a listener.
fn came_from(link: &Arc<Link>, ends: &Ends<'_>, cookie: u64, handle: u64) -> Option<*mut Proxy> {
    let listener = object(link, ends, cookie)?;
    // SAFETY: only the pump frees a proxy that is made.
    let version = unsafe { (*listener).version() };
    let table = ptr::from_ref(&CONNECTOR).cast();
    let connector = Proxy::try_new(link, NDK_OBJECT_TYPE::CONNECTOR, version, table, Own::None, None).ok()?;
    connector.set_made(handle);
    connector.depend_on(cookie);
    share(link, connector).ok().map(|(connector, _)| connector)
}
