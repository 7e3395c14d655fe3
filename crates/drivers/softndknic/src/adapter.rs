//! One adapter, from its initialisation to its halt.
//!
//! | NDIS | the adapter |
//! |---|---|
//! | initialise | made, paused; consumers of NDK can open it if `*NetworkDirect` says so |
//! | restart | frames go |
//! | pause | what waits is completed with `NDIS_STATUS_PAUSED`; complete when nothing is with the protocols any more |
//! | low power | paused before; no new opens; every RDMA connection ends, and both its sides are told |
//! | power again | opens and connections as before; restarted afterwards |
//! | surprise removal | no new opens; every RDMA connection ends, and both its sides are told |
//! | halt | the same, for those who were not told before; then waits for consumers and for work items; nothing is left |

use core::ffi::c_void;

use cable::{Counters, Gate, MacAddress};
use driver_common::{
    consumers::Consumers,
    numbers::{Number, Numbers},
    os::{Kernel, KernelLock},
    trace,
};
use engine::os::{Os, SpinLock};
use fallible::Arc;
use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_STATUS, NDIS_STATUS_PAUSED, NET_LUID, NdisMPauseComplete, NdisMRemoveMiniport,
};
use ndkpi::{NDIS_HANDLE, NtStatus};

use crate::{
    addresses::Addresses, attributes, configuration::Keywords, control::Control, driver::Driver, filter::Filter,
    framework::Device, handlers::Context, ndk::Ndk, receive::Receiver, transmit::Transmitter,
};

/// An adapter.
pub struct Adapter {
    driver: Arc<Driver>,
    number: Number,
    handle: NDIS_HANDLE,
    luid: NET_LUID,
    keywords: Keywords,
    mac: MacAddress,
    consumers: Consumers,
    ndk: Ndk,
    addresses: Addresses,
    gate: KernelLock<Gate>,
    filter: KernelLock<Filter>,
    receiver: Receiver,
    transmitter: Transmitter,
    sent: Counters,
    received: Counters,
    state: KernelLock<State>,
    /// The framework's device; gone after the halt.
    device: KernelLock<Option<Device>>,
}

// SAFETY: NDIS's handle may be used on any thread; everything else can by itself.
unsafe impl Send for Adapter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Adapter {}

/// What decides whether consumers can open an adapter.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// NDK is enabled.
    enabled: bool,
    /// The adapter is in D1, D2 or D3.
    asleep: bool,
    /// The device is gone, or about to be.
    gone: bool,
}

/// Has NDIS remove the adapter as one that was pulled: a surprise removal follows. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
///
/// `adapter` is NDIS's handle of an adapter that is not halted.
unsafe fn fail(adapter: *mut c_void) {
    // Nobody could do more about a refusal: the adapter is of no use to anybody already.
    // SAFETY: the caller's promise.
    let _ = unsafe { NdisMRemoveMiniport(adapter) };
}

/// The hardware address of the adapter of an interface: administered locally, and another for each adapter of the machine.
#[must_use]
pub fn mac_of(luid: NET_LUID) -> MacAddress {
    let [_, high, middle, low] = luid.index().to_be_bytes();
    [0x02, b'N', b'D', high, middle, low]
}

impl Adapter {
    /// `MiniportInitializeEx`. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What is missing; then nothing is left.
    ///
    /// # Safety
    ///
    /// `handle` is that of an adapter that NDIS is initialising.
    pub unsafe fn initialize(driver: Arc<Driver>, handle: NDIS_HANDLE, luid: NET_LUID) -> Result<(), NtStatus> {
        let context = Arc::try_new(Context::new()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let context = Arc::into_raw(context);
        // SAFETY: the reference of `into_raw` is given back when the adapter is halted, or below.
        let place = unsafe { &*context };
        // SAFETY: the caller's promise; the context lives until the adapter is halted, or not initialised.
        let made = unsafe { Self::make(driver, handle, luid, place) };
        made.inspect_err(|_| {
            // SAFETY: the reference of `into_raw`. NDIS forgets a context whose adapter is not initialised.
            drop(unsafe { Arc::from_raw(context) });
        })
    }

    /// # Safety
    ///
    /// As for [`Adapter::initialize`]. The context lives until the adapter is halted, or this has failed.
    unsafe fn make(
        driver: Arc<Driver>,
        handle: NDIS_HANDLE,
        luid: NET_LUID,
        context: &Context,
    ) -> Result<(), NtStatus> {
        // SAFETY: the caller's promise.
        unsafe { attributes::set_registration(handle, context) }?;
        // SAFETY: the caller's promise.
        let this = unsafe { Self::try_new(driver, handle, luid) }?;
        attributes::set_general(&this)?;
        this.ndk.report(&this)?;
        let registration = this.driver.handle();
        // SAFETY: the driver is registered: NDIS initialises its adapter.
        this.driver.control().with(|control| unsafe { control.acquire(registration) })?;
        this.driver.add(&this);
        context.put(this.clone());
        let begun = Addresses::begin(&this);
        if begun.is_err() {
            this.end();
            drop(context.take());
        }
        // NDIS opens only what is initialised.
        this.enable(begun.is_ok() && this.keywords.network_direct);
        begun
    }

    /// Reads what an adapter is to be, and makes it.
    ///
    /// # Safety
    ///
    /// As for [`Adapter::initialize`].
    #[inline(never)]
    unsafe fn try_new(driver: Arc<Driver>, handle: NDIS_HANDLE, luid: NET_LUID) -> Result<Arc<Self>, NtStatus> {
        // SAFETY: the caller's promise.
        let keywords = unsafe { Keywords::read(handle) }?;
        let number = Numbers::take(driver.numbers())?;
        if keywords.roce_frame != keywords.wanted_roce_frame {
            trace::roce_frame(number.get(), keywords.wanted_roce_frame, keywords.roce_frame);
        }
        let provider = Self::provide(&driver, number.index(), &keywords)?;
        // SAFETY: the caller's promise.
        unsafe { Self::assemble(driver, handle, luid, keywords, number, provider) }
    }

    /// Makes an adapter of its parts. Not part of its caller: all of an adapter passes through this frame, and none of it is there yet
    /// while the provider is made.
    ///
    /// # Safety
    ///
    /// As for [`Adapter::initialize`].
    #[inline(never)]
    unsafe fn assemble(
        driver: Arc<Driver>,
        handle: NDIS_HANDLE,
        luid: NET_LUID,
        keywords: Keywords,
        number: Number,
        provider: Arc<provider::Device<Kernel>>,
    ) -> Result<Arc<Self>, NtStatus> {
        let mac = keywords.address.unwrap_or_else(|| mac_of(luid));
        // The pairs share the processors.
        #[expect(clippy::cast_possible_truncation, reason = "an adapter's number")]
        let processor = number.index() as u32 % Kernel.processors();
        // SAFETY: the caller's promise.
        let device = unsafe { Device::try_new(driver.framework(), handle) }?;
        let this = Self {
            handle,
            luid,
            keywords,
            mac,
            // SAFETY: the caller's promise: it is closed at the halt.
            ndk: unsafe { Ndk::try_new(handle, provider.config(), keywords.network_direct) }?,
            // SAFETY: as above.
            addresses: unsafe { Addresses::try_new(handle) }?,
            gate: Kernel.lock(Gate::new())?,
            filter: Kernel.lock(Filter::new(mac))?,
            // SAFETY: as above: it is released at the halt.
            receiver: unsafe { Receiver::try_new(handle, &keywords, processor) }?,
            transmitter: Transmitter::try_new(processor)?,
            sent: Counters::default(),
            received: Counters::default(),
            state: Kernel.lock(State::default())?,
            device: Kernel.lock(Some(device))?,
            consumers: Consumers::try_new(provider, driver.controls(), fail)?,
            driver,
            number,
        };
        // SAFETY: the adapter is not halted before `end` has waited for who has it open.
        unsafe { this.consumers.presence().is(handle) };
        Arc::try_new(this).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// The provider of an adapter with this index and these keywords.
    #[inline(never)]
    fn provide(driver: &Driver, index: usize, keywords: &Keywords) -> Result<Arc<provider::Device<Kernel>>, NtStatus> {
        let settings = driver.controls().settings();
        let mut config = settings.provider_config();
        // A profile has a technology of its own, or none.
        config.info.RdmaTechnology = keywords.technology;
        settings.profile.limit(&mut config);
        keywords.profile.limit(&mut config);
        // A cable is a link, with addresses of its own: see `Driver::partner`.
        config.link = u32::try_from(index / 2).unwrap_or(0);
        // Windows says which addresses the interface has.
        config.addresses = [None; provider::device::MAX_ADDRESSES];
        provider::Device::try_new_on(&Kernel, driver.fabric(), config)
    }

    /// `MiniportHaltEx`: the adapter is paused, and NDIS calls nothing of it any more. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    ///
    /// `context` is NDIS's for the adapter, and is not used after this.
    pub unsafe fn halt(context: NDIS_HANDLE) {
        // SAFETY: the reference of `initialize`, which nobody else gives back.
        let context = unsafe { Arc::from_raw(context.cast_const().cast::<Context>()) };
        // Consumers who were not asked before close meanwhile, and find the adapter by the context.
        if let Some(adapter) = context.get() {
            adapter.end();
        }
        drop(context.take());
    }

    /// Ends everything that goes on by itself, and gives NDIS back what is NDIS's. `PASSIVE_LEVEL`.
    fn end(&self) {
        // Whoever has the adapter open hears of it before it is waited for: nothing says that NDIS has had everybody close it.
        self.leave_fabric();
        self.addresses.end();
        self.ndk.end();
        self.consumers.shut();
        self.driver.remove(self.number.index());
        self.driver.control().with(Control::release);
        self.receiver.release();
        drop(self.device.with(Option::take));
    }

    /// `MiniportRestart`. `PASSIVE_LEVEL`.
    pub fn restart(&self) {
        // What a sender that was late has put there after the pause.
        self.received.discard(self.receiver.clear() as u64);
        self.gate.with(Gate::open);
    }

    /// `MiniportPause`: `NDIS_STATUS_PENDING` if something is with the protocols, or being carried. `PASSIVE_LEVEL`.
    pub fn pause(&self) -> NDIS_STATUS {
        // The pause itself is inside until everything is called back: it is complete either here or later, not meanwhile.
        let was_open = self.gate.with(|gate| {
            let was_open = gate.enter(1);
            let _ = gate.close();
            was_open
        });
        let waiting = self.transmitter.take_all();
        self.complete(waiting, NDIS_STATUS_PAUSED, false, true);
        self.received.discard(self.receiver.clear() as u64);
        let complete = !was_open || self.gate.with(|gate| gate.leave(1));
        if !complete {
            return NtStatus::PENDING;
        }
        self.receiver.paused();
        NDIS_STATUS::SUCCESS
    }

    /// Counts `count` more inside the gate; returns false if it is not open. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn enter(&self, count: u32) -> bool {
        self.gate.with(|gate| gate.enter(count))
    }

    /// Counts `count` fewer inside the gate, and completes a pause that waited for the last of them.
    /// `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn leave(&self, count: u32) {
        if self.gate.with(|gate| gate.leave(count)) {
            self.receiver.paused();
            // SAFETY: a pause of this adapter has pended, and nothing is on its way any more.
            unsafe { NdisMPauseComplete(self.handle) };
        }
    }

    /// Returns true between restart and pause.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.gate.with(|gate| gate.is_open())
    }

    /// The adapter at the other end, inside of its gate once more, if it is there and runs.
    #[must_use]
    pub fn enter_partner(&self) -> Option<Arc<Self>> {
        self.driver.partner(self.number.index()).filter(|partner| partner.enter(1))
    }

    /// `MiniportReturnNetBufferLists`. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The lists were indicated, and are the miniport's again.
    pub unsafe fn take_back(&self, lists: *mut ndis::NET_BUFFER_LIST) {
        // SAFETY: the caller's promise.
        let lists = unsafe { crate::frames::Chain::of(lists) };
        let count = lists.count();
        if self.receiver.take_back(lists)
            && let Some(sender) = self.driver.partner(self.number.index())
        {
            Self::wake_sender(&sender);
        }
        self.leave(count);
    }

    /// The device is gone. `PASSIVE_LEVEL`.
    pub fn gone(&self) {
        trace::gone(self.number.get(), self.consumers.open_count());
        // Consumers have disconnect events and flushed queue pairs before they are asked to close.
        self.leave_fabric();
    }

    /// Lets nobody open the adapter any more, and ends what goes over it.
    fn leave_fabric(&self) {
        self.change_state(|state| state.gone = true);
        self.provider().port().abort();
    }

    /// Returns true if the device is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state.with(|state| state.gone)
    }

    /// NDK is enabled, or not: consumers can open the adapter, as long as it is there and has power. `IRQL <= DISPATCH_LEVEL`.
    pub fn enable(&self, enabled: bool) {
        self.change_state(|state| state.enabled = enabled);
    }

    /// `OID_PNP_SET_POWER`. Frames are no part of it: NDIS has paused the adapter before it sleeps, and restarts it when it is awake.
    ///
    /// RDMA does not pass through the gate, and a sleeping adapter carries none: connections end, and both sides of each are told, as
    /// when the adapter is gone. Everything that is open stays, and can be used when the adapter is awake.
    pub fn set_power(&self, state: NDIS_DEVICE_POWER_STATE) {
        let sleeps = state != NDIS_DEVICE_POWER_STATE::D0;
        let is_news = self.change_state(|state| core::mem::replace(&mut state.asleep, sleeps) != sleeps);
        if !is_news {
            return;
        }
        trace::power(self.number.get(), !sleeps);
        let port = self.provider().port();
        if sleeps { port.suspend() } else { port.resume() }
    }

    /// Changes what decides whether consumers can open the adapter.
    fn change_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.state.with(|state| {
            let result = change(state);
            self.consumers.set_ready(state.enabled && !state.asleep && !state.gone);
            result
        })
    }

    /// The filter as it is now.
    #[must_use]
    pub fn filter(&self) -> Filter {
        self.filter.with(|filter| *filter)
    }

    /// Changes the filter.
    pub fn change_filter<T>(&self, change: impl FnOnce(&mut Filter) -> T) -> T {
        self.filter.with(change)
    }

    /// The adapter's index in the driver.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.number.index()
    }

    /// The adapter's number, from 1 on.
    #[must_use]
    pub const fn number(&self) -> u8 {
        self.number.get()
    }

    /// NDIS's handle.
    #[must_use]
    pub const fn handle(&self) -> NDIS_HANDLE {
        self.handle
    }

    /// The interface.
    #[must_use]
    pub const fn luid(&self) -> NET_LUID {
        self.luid
    }

    /// What the keywords say.
    #[must_use]
    pub const fn keywords(&self) -> &Keywords {
        &self.keywords
    }

    /// The hardware address in use.
    #[must_use]
    pub const fn mac(&self) -> &MacAddress {
        &self.mac
    }

    /// The NDK consumers that have it open.
    #[must_use]
    pub const fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// The provider behind it.
    #[must_use]
    pub const fn provider(&self) -> &Arc<provider::Device<Kernel>> {
        self.consumers.provider()
    }

    /// NDK on this adapter: its state and its consumers.
    #[must_use]
    pub const fn ndk(&self) -> &Ndk {
        &self.ndk
    }

    /// The addresses of the interface.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The receiving end.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The sending end.
    #[must_use]
    pub const fn transmitter(&self) -> &Transmitter {
        &self.transmitter
    }

    /// Counters of sent frames.
    #[must_use]
    pub const fn sent(&self) -> &Counters {
        &self.sent
    }

    /// Counters of received frames.
    #[must_use]
    pub const fn received(&self) -> &Counters {
        &self.received
    }
}

#[cfg(test)]
mod tests {
    use ndis::NET_LUID;

    use super::mac_of;

    #[test]
    fn each_interface_has_a_station_address_of_its_own() {
        let one = mac_of(NET_LUID { Value: 0x0006_0080_0100_0000 });
        let other = mac_of(NET_LUID { Value: 0x0006_0080_0200_0000 });
        assert_eq!(one, [2, b'N', b'D', 0, 0x80, 1]);
        assert_ne!(one, other);
        assert!(cable::frame::is_station(&one));
    }
}
