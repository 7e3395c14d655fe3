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
    numbers::{MAX_ADAPTERS, Number, Numbers},
    os::{Kernel, KernelLock},
    trace,
};
use engine::{
    os::{Os, SpinLock},
    wire::WireConfig,
};
use fallible::Arc;
use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_STATUS, NDIS_STATUS_PAUSED, NET_LUID, NdisMPauseComplete, NdisMRemoveMiniport,
};
use ndkpi::{NDIS_HANDLE, NtStatus};

use crate::{
    addresses::Addresses,
    attributes,
    configuration::Keywords,
    control::Control,
    driver::Driver,
    filter::Filter,
    framework::Device,
    handlers::Context,
    ndk::Ndk,
    receive::Receiver,
    transmit::Transmitter,
    wire::{Tunnel, Wanted},
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
    way: Way,
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

/// What is at the end of an adapter.
enum Way {
    /// A cable, to the adapter's partner.
    Cable,
    /// A wire, to other machines.
    Wire(Arc<Tunnel>),
    /// Nothing: its keywords name a wire that cannot be.
    Nowhere,
}

impl Way {
    const fn tunnel(&self) -> Option<&Arc<Tunnel>> {
        if let Self::Wire(tunnel) = self { Some(tunnel) } else { None }
    }
}

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
    // SAFETY: NDIS has not halted the adapter of this handle (`# Safety`).
    let _ = unsafe { NdisMRemoveMiniport(adapter) };
}

/// The processor of an adapter's DPCs: the adapters share them.
#[expect(clippy::cast_possible_truncation, reason = "an adapter's number")]
fn processor_of(number: &Number) -> u32 {
    number.index() as u32 % Kernel.processors()
}

/// Bytes of the packets that a wire carries, for the path MTU that the adapter reports, which fits its frames.
fn network_mtu(keywords: &Keywords) -> u16 {
    u16::try_from(keywords.roce_frame as usize + roce::mtu::HEADERS).unwrap_or(u16::MAX)
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
        // SAFETY: NDIS is initialising the adapter (`# Safety`); the context lives until it is halted, or not initialised.
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
        // SAFETY: NDIS is initialising the adapter of `handle`, and the context lives as long as it (`# Safety`).
        unsafe { attributes::set_registration(handle, context) }?;
        // SAFETY: NDIS is initialising the adapter of `handle` (`# Safety`).
        let this = unsafe { Self::try_new(driver, handle, luid) }?;
        this.announce().inspect_err(|_| {
            if let Some(tunnel) = this.tunnel() {
                tunnel.end();
            }
        })?;
        this.driver.add(&this);
        context.put(this.clone());
        if let Some(tunnel) = this.tunnel() {
            tunnel.begin(&this);
        }
        let begun = Addresses::begin(&this);
        if begun.is_err() {
            this.end();
            drop(context.take());
        }
        // NDIS opens only what is initialised.
        this.enable(begun.is_ok() && this.keywords.network_direct);
        begun
    }

    /// Tells NDIS what the adapter is, and has the control device be there.
    fn announce(&self) -> Result<(), NtStatus> {
        attributes::set_general(self)?;
        self.ndk.report(self)?;
        let registration = self.driver.handle();
        // SAFETY: the driver is registered: NDIS initialises its adapter.
        self.driver.control().with(|control| unsafe { control.acquire(registration) })
    }

    /// Reads what an adapter is to be, and makes it.
    ///
    /// # Safety
    ///
    /// As for [`Adapter::initialize`].
    #[inline(never)]
    unsafe fn try_new(driver: Arc<Driver>, handle: NDIS_HANDLE, luid: NET_LUID) -> Result<Arc<Self>, NtStatus> {
        // SAFETY: NDIS is initialising the adapter of `handle` (`# Safety`): its configuration can be opened.
        let mut keywords = unsafe { Keywords::read(handle) }?;
        // SAFETY: the same configuration.
        let wanted = unsafe { Wanted::read(handle) }?;
        if let Wanted::Wire(ends) = &wanted {
            keywords.shorten(ends.around());
        }
        let number = Numbers::take(driver.numbers())?;
        if keywords.roce_frame != keywords.wanted_roce_frame {
            trace::roce_frame(number.get(), keywords.wanted_roce_frame, keywords.roce_frame);
        }
        // SAFETY: NDIS is initialising the adapter of `handle` (`# Safety`).
        let way = unsafe { Self::way(handle, &number, &keywords, wanted) }?;
        let mac = keywords.address.unwrap_or_else(|| mac_of(luid));
        let tunnel = way.tunnel().cloned();
        Self::provide(&driver, number.index(), &keywords, &way, mac)
            // SAFETY: NDIS is initialising the adapter of `handle` (`# Safety`).
            .and_then(|provider| unsafe { Self::assemble(driver, handle, luid, keywords, number, provider, way) })
            .inspect_err(|_| {
                // The engine may have it a little longer.
                if let Some(tunnel) = tunnel {
                    tunnel.end();
                }
            })
    }

    /// What is at the end of an adapter with this number and these keywords.
    ///
    /// # Safety
    ///
    /// As for [`Adapter::initialize`].
    #[inline(never)]
    unsafe fn way(handle: NDIS_HANDLE, number: &Number, keywords: &Keywords, wanted: Wanted) -> Result<Way, NtStatus> {
        Ok(match wanted {
            Wanted::Cable => Way::Cable,
            Wanted::Refused(keyword, wrong) => {
                trace::keyword_refused(number.get(), keyword, wrong.words());
                Way::Nowhere
            }
            Wanted::Wire(ends) => {
                // SAFETY: NDIS is initialising the adapter of `handle` (`# Safety`); the tunnel is ended at the halt.
                Way::Wire(unsafe { Tunnel::try_new(handle, ends, keywords, processor_of(number)) }?)
            }
        })
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
        way: Way,
    ) -> Result<Arc<Self>, NtStatus> {
        let mac = keywords.address.unwrap_or_else(|| mac_of(luid));
        let processor = processor_of(&number);
        // SAFETY: NDIS is initialising the adapter of `handle` (`# Safety`).
        let device = unsafe { Device::try_new(driver.framework(), handle) }?;
        let this = Self {
            handle,
            luid,
            keywords,
            mac,
            // SAFETY: NDIS is initialising the adapter (`# Safety`), and its halt closes this.
            ndk: unsafe { Ndk::try_new(handle, provider.config(), keywords.network_direct) }?,
            // SAFETY: the adapter lives until its halt, which ends the work of `addresses`.
            addresses: unsafe { Addresses::try_new(handle) }?,
            gate: Kernel.lock(Gate::new())?,
            filter: Kernel.lock(Filter::new(mac))?,
            // SAFETY: as above: it is released at the halt.
            receiver: unsafe { Receiver::try_new(handle, &keywords, processor) }?,
            way,
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
    fn provide(
        driver: &Driver,
        index: usize,
        keywords: &Keywords,
        way: &Way,
        mac: MacAddress,
    ) -> Result<Arc<provider::Device<Kernel>>, NtStatus> {
        let settings = driver.controls().settings();
        let mut config = settings.provider_config();
        // A profile has a technology of its own, or none.
        config.info.RdmaTechnology = keywords.technology;
        settings.profile.limit(&mut config);
        keywords.profile.limit(&mut config);
        // A cable is a link, with addresses of its own: see `Driver::partner`. So is the end of a wire: even an adapter of this machine is
        // reached over that.
        let link = if matches!(way, Way::Cable) { index / 2 } else { MAX_ADAPTERS + index };
        config.link = u32::try_from(link).unwrap_or(0);
        // Windows says which addresses the interface has.
        config.addresses = [None; provider::device::MAX_ADDRESSES];
        let Way::Wire(tunnel) = way else { return provider::Device::try_new_on(&Kernel, driver.fabric(), config) };
        let wire = WireConfig {
            network_mtu: network_mtu(keywords),
            seed: u64::from(Kernel.random()) << 32 | u64::from(Kernel.random()),
            ..WireConfig::new(mac)
        };
        provider::Device::try_new_with_cable(&Kernel, driver.fabric(), config, wire, Tunnel::plug(tunnel)?)
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
        if let Some(tunnel) = self.tunnel() {
            tunnel.end();
        }
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

    /// The adapter at the other end of the cable, if there is a cable, and an adapter.
    fn partner(&self) -> Option<Arc<Self>> {
        let partner = self.has_cable().then(|| self.driver.partner(self.number.index())).flatten();
        partner.filter(|partner| partner.has_cable())
    }

    /// The adapter at the other end of the cable, inside of its gate once more, if it is there and runs.
    #[must_use]
    pub fn enter_partner(&self) -> Option<Arc<Self>> {
        self.partner().filter(|partner| partner.enter(1))
    }

    const fn has_cable(&self) -> bool {
        matches!(self.way, Way::Cable)
    }

    /// The wire to other machines, if that is at the adapter's end.
    #[must_use]
    pub const fn tunnel(&self) -> Option<&Arc<Tunnel>> {
        self.way.tunnel()
    }

    /// Returns true if the link is up when the adapter starts: a cable has one always, a wire when it has a socket.
    #[must_use]
    pub const fn has_link(&self) -> bool {
        self.has_cable()
    }

    /// Returns true if RDMA goes over the adapter: NDK is enabled, and the adapter is there and awake. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn is_rdma_on(&self) -> bool {
        self.state.with(|state| state.enabled && !state.asleep && !state.gone)
    }

    /// `MiniportReturnNetBufferLists`. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The lists were indicated, and are the miniport's again.
    pub unsafe fn take_back(&self, lists: *mut ndis::NET_BUFFER_LIST) {
        // SAFETY: the lists were indicated and came back (`# Safety`): they are a chain of the miniport's own.
        let lists = unsafe { crate::frames::Chain::of(lists) };
        let count = lists.count();
        if self.receiver.take_back(lists)
            && let Some(sender) = self.partner()
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
        if sleeps {
            port.suspend();
        } else {
            port.resume();
        }
        if let Some(tunnel) = self.tunnel() {
            tunnel.set_awake(!sleeps);
        }
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
