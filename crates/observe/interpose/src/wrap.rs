//! Where the layer begins and ends: at the adapter.

use fallible::Arc;
use ndkpi::{NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NtStatus};

use crate::{
    Args, Function, Hooks, ObjectId, Outcome, Phase,
    call::EventReport,
    shadow::{CloseRequest, Root, Shadow, ShadowRef, recognise},
};

/// Puts a layer in front of an adapter: what the consumer gets instead of it. `PASSIVE_LEVEL`.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`; what `NdkQueryAdapterInfo` and the hooks say. The adapter is as it was.
///
/// # Safety
///
/// `adapter` is an open adapter, which is used by this layer alone until it was given back by [`close`].
pub unsafe fn wrap<H: Hooks>(adapter: *mut NDK_ADAPTER, hooks: H) -> Result<*mut NDK_ADAPTER, NtStatus> {
    if adapter.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the adapter is open (`# Safety`), and this is called at `PASSIVE_LEVEL`.
    let state = hooks.adapter(&unsafe { info_of(adapter) }?)?;
    let root = Root::try_new(hooks)?;
    let shadow = Shadow::try_new(&root, None, ObjectId { kind: NDK_OBJECT_TYPE::ADAPTER, number: 0 }, state)?;
    // SAFETY: the adapter is open (`# Safety`), and the shadow was not handed out.
    unsafe { shadow.adopt(adapter.cast()) };
    Ok(Shadow::into_public(shadow).cast())
}

/// The limits and abilities of an adapter.
///
/// # Safety
///
/// The adapter is open; called at `PASSIVE_LEVEL`.
unsafe fn info_of(adapter: *mut NDK_ADAPTER) -> Result<NDK_ADAPTER_INFO, NtStatus> {
    let mut info = NDK_ADAPTER_INFO::default();
    let mut size = u32::try_from(size_of::<NDK_ADAPTER_INFO>()).unwrap_or(u32::MAX);
    // SAFETY: the adapter is open (`# Safety`).
    let table = unsafe { (*adapter).Dispatch };
    // SAFETY: the slot is in the table of every version; only the slot is read.
    let function = unsafe { (*table).NdkQueryAdapterInfo }.ok_or(NtStatus::NOT_SUPPORTED)?;
    // SAFETY: the adapter is open, the information is as large as `size` says.
    let status = unsafe { function(adapter, &raw mut info, &raw mut size) };
    if status == NtStatus::SUCCESS { Ok(info) } else { Err(status) }
}

/// Closes an adapter that [`wrap`] has made. `PASSIVE_LEVEL`, and never from a callback.
///
/// `close_provider` closes the provider's. It has to wait, as `CLOSE_NDK_ADAPTER_HANDLER` does, until every object that descends
/// from it is closed and every callback has returned. Then nothing of the layer is left.
///
/// Returns what `close_provider` returns; `None` if `adapter` is not one of this layer.
///
/// # Safety
///
/// `adapter` came from [`wrap`] with the same `H`, is closed once, and is not used after this call.
pub unsafe fn close<H: Hooks, T>(
    adapter: *mut NDK_ADAPTER,
    close_provider: impl FnOnce(*mut NDK_ADAPTER) -> T,
) -> Option<T> {
    // SAFETY: `adapter` is null, or an object that stays open as long as the shadow is used (`# Safety`).
    let shadow = unsafe { recognise::<H>(adapter.cast_const().cast()) }?;
    if shadow.id().kind != NDK_OBJECT_TYPE::ADAPTER {
        return None;
    }
    // SAFETY: the consumer's reference, which it does not use any more.
    let shadow: ShadowRef<H> = unsafe { Arc::from_raw(shadow) };
    let mut report = EventReport::new(&shadow, Function::CloseAdapter, Args::None);
    let _ = report.tell(Phase::Call, Outcome::None);
    let inner = shadow.inner::<NDK_ADAPTER>();
    if !shadow.begin_close(CloseRequest { call: report.number(), completion: None, context: core::ptr::null_mut() }) {
        return None;
    }
    let result = close_provider(inner);
    shadow.root.wait();
    report.end(Outcome::None);
    shadow.mark_gone();
    shadow.root.exhume();
    Some(result)
}

/// As [`close`], for an adapter that may be one of this layer or not: if it is not, `close_provider` closes it.
///
/// # Safety
///
/// As for [`close`], or `adapter` is open and one that `close_provider` closes; it is not used after this call.
pub unsafe fn close_through<H: Hooks, T>(
    adapter: *mut NDK_ADAPTER,
    close_provider: impl Fn(*mut NDK_ADAPTER) -> T,
) -> T {
    // SAFETY: the adapter is open; what is not of this layer is recognised.
    unsafe { close::<H, T>(adapter, &close_provider) }.unwrap_or_else(|| close_provider(adapter))
}

/// The provider's adapter behind one that [`wrap`] has made, for what a provider asks of its own adapters (its counters, for
/// example). `None` if `adapter` is not one of this layer.
///
/// # Safety
///
/// `adapter` is null, or an adapter that stays open as long as the result is used.
#[must_use]
pub unsafe fn inner<H: Hooks>(adapter: *mut NDK_ADAPTER) -> Option<*mut NDK_ADAPTER> {
    // SAFETY: `adapter` is null, or an object that stays open as long as the shadow is used (`# Safety`).
    let shadow = unsafe { recognise::<H>(adapter.cast_const().cast()) }?;
    (shadow.id().kind == NDK_OBJECT_TYPE::ADAPTER).then(|| shadow.inner())
}
