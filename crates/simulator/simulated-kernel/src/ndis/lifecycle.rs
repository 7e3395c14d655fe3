//! An adapter from its initialisation to its end: what NDIS and the protocols above it do, at a test's command.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use host::machine::{self, Irql};
use ndis::{
    NDIS_DEVICE_PNP_EVENT, NDIS_DEVICE_POWER_STATE, NDIS_HALT_ACTION, NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND,
    NDIS_MINIPORT_INIT_PARAMETERS, NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1, NDIS_MINIPORT_PAUSE_PARAMETERS,
    NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1, NDIS_MINIPORT_RESTART_PARAMETERS,
    NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1, NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS, NDIS_PAUSE_LOW_POWER,
    NDIS_PAUSE_MINIPORT_DEVICE_REMOVE, NDIS_PAUSE_NDIS_INTERNAL, NDIS_SHUTDOWN_ACTION,
    NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1, NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1, NDIS_STATUS, NET_DEVICE_PNP_EVENT, NET_DEVICE_PNP_EVENT_REVISION_1,
    OID_PNP_SET_POWER,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::DEVICE_OBJECT;

use super::{
    adapter::{Adapter, Changing, Phase, owed},
    attributes::Attributes,
    bind::Turn,
    ndk::Provider,
    nic::{Nic, NicInterface},
    oid::OidAnswer,
    restart::Attributes as RestartAttributes,
    structure::ndis_routine,
};
use crate::{
    drivers::Driver,
    ndis::adapter::Adapters,
    netio::{network::Network, stack::NewInterface},
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    waiting,
};

impl Driver {
    /// Plug and play finds an adapter for a miniport driver, whose keywords have these values: NDIS initialises and restarts it.
    ///
    /// # Errors
    ///
    /// What the miniport says. Then nothing of the adapter may be left.
    ///
    /// # Panics
    ///
    /// If the driver is no miniport driver, which is the test's fault.
    pub fn add_nic(&self, keywords: &[(&str, &str)]) -> Result<Nic, NDIS_STATUS> {
        self.add_nic_as(keywords, &NicInterface::default())
    }

    /// The same with an interface that is as somebody wants it.
    ///
    /// # Errors
    ///
    /// As [`Driver::add_nic`].
    ///
    /// # Panics
    ///
    /// As [`Driver::add_nic`], and if another interface has the index or identifier.
    pub fn add_nic_as(&self, keywords: &[(&str, &str)], interface: &NicInterface) -> Result<Nic, NDIS_STATUS> {
        let nic = self.initialise_nic_as(keywords, interface)?;
        let turn = Turn::take(&nic.state, &nic.adapter);
        if let Err(status) = nic.state.restart_stack(&nic.adapter) {
            nic.halt(NDIS_HALT_ACTION::INITIALIZATION_FAILED);
            return Err(status);
        }
        nic.tell(NDIS_DEVICE_PNP_EVENT::POWER_PROFILE_CHANGED);
        nic.state.bind_adapter(&nic.adapter);
        drop(turn);
        Ok(nic)
    }

    /// The same, but leaves the adapter paused.
    ///
    /// # Errors
    ///
    /// What the miniport says. Then nothing of the adapter may be left.
    ///
    /// # Panics
    ///
    /// If the driver is no miniport driver, which is the test's fault.
    pub fn initialise_nic(&self, keywords: &[(&str, &str)]) -> Result<Nic, NDIS_STATUS> {
        self.initialise_nic_as(keywords, &NicInterface::default())
    }

    fn initialise_nic_as(&self, keywords: &[(&str, &str)], interface: &NicInterface) -> Result<Nic, NDIS_STATUS> {
        let state = &self.state;
        let miniport = state.miniport(self.id).expect("a miniport driver");
        // The interface is there before the adapter, and what it is like is known after its initialisation.
        let network = Network::of(state.clone());
        let new = NewInterface::ethernet("");
        let (if_index, luid) = network.add_interface_as(&new, interface.index, interface.luid);
        let object = || std::ptr::from_mut(Box::leak(Box::new(DEVICE_OBJECT::default()))).expose_provenance();
        let adapter = Arc::new(Adapter {
            handle: state.new_handle(),
            owner: self.id,
            if_index,
            luid: luid.Value,
            alias: interface.alias.clone().unwrap_or_else(|| format!("Ethernet {if_index}")),
            keywords: keywords.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            handlers: miniport.handlers,
            ndk: *lock(&miniport.ndk),
            context: AtomicUsize::new(0),
            devices: [object(), object(), object()],
            changing: Mutex::new(Changing {
                phase: Phase::Initialising,
                failed: false,
                pause_returned: false,
                restarted: None,
                attributes: Attributes::default(),
                ndk_enabled: false,
                ndk_open: BTreeSet::new(),
                ndk_opening: 0,
                sent: 0,
                indicated: 0,
                kept: VecDeque::new(),
                keeps: false,
                quiet: false,
                indicating: 0,
                filter: 0,
                received: Vec::new(),
                tags: Vec::new(),
                statuses: Vec::new(),
                sleeps: false,
                paused_to_sleep: false,
            }),
            asks: AtomicBool::new(false),
            turn: AtomicBool::new(false),
        });
        state.locked::<Adapters>().live.insert(adapter.handle, adapter.clone());
        let parameters = NDIS_MINIPORT_INIT_PARAMETERS {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS,
                NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1,
                size::<NDIS_MINIPORT_INIT_PARAMETERS>(),
            ),
            Flags: 0,
            AllocatedResources: std::ptr::null_mut(),
            IMDeviceInstanceContext: std::ptr::null_mut(),
            MiniportAddDeviceContext: std::ptr::null_mut(),
            IfIndex: adapter.if_index,
            NetLuid: luid,
            DefaultPortAuthStates: std::ptr::null_mut(),
            PciDeviceCustomProperties: std::ptr::null_mut(),
        };
        let nic = Nic { state: state.clone(), adapter };
        let handler = owed(miniport.handlers.InitializeHandlerEx, "InitializeHandlerEx");
        let status = nic.adapter.call("MiniportInitializeEx", |_| {
            let context = std::ptr::with_exposed_provenance_mut(miniport.context);
            // SAFETY: the driver's own handler and context, and parameters that live until it returns.
            unsafe { handler(nic.adapter.pointer(), context, &raw const parameters) }
        });
        if status != NDIS_STATUS_SUCCESS {
            if status.is_success() {
                bug_check(Rule::BadArgument, format_args!("MiniportInitializeEx returned {status}"));
            }
            nic.forget("an adapter that was not initialised");
            return Err(status);
        }
        {
            let mut changing = lock(&nic.adapter.changing);
            changing.attributes.check(&nic.adapter);
            changing.phase = Phase::Paused;
        }
        nic.join(&network);
        let turn = Turn::take(state, &nic.adapter);
        state.attach_filters(&nic.adapter);
        drop(turn);
        Ok(nic)
    }
}

const fn size<T>() -> u16 {
    assert!(size_of::<T>() <= u16::MAX as usize, "a small structure");
    #[expect(clippy::cast_possible_truncation, reason = "checked")]
    let size = size_of::<T>() as u16;
    size
}

impl State {
    /// Restarts the miniport of a paused adapter, the modules above it and then the protocols. What the miniport says if it does not restart.
    pub fn restart_stack(self: &Arc<Self>, adapter: &Arc<Adapter>) -> Result<(), NDIS_STATUS> {
        let state = self;
        {
            let mut changing = lock(&adapter.changing);
            assert_eq!(changing.phase, Phase::Paused, "a test restarts an adapter that is paused");
            (changing.phase, changing.restarted) = (Phase::Restarting, None);
        }
        let parameters = NDIS_MINIPORT_RESTART_PARAMETERS {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_DEFAULT,
                NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1,
                NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1,
            ),
            RestartAttributes: std::ptr::null_mut(),
            Flags: 0,
        };
        let handler = owed(adapter.handlers.RestartHandler, "RestartHandler");
        let mut status = adapter.call("MiniportRestart", |context| {
            // SAFETY: the driver's own handler and context, and parameters that live until it returns.
            unsafe { handler(context, &raw const parameters) }
        });
        if status == NDIS_STATUS_PENDING {
            let end = state.machine.now().saturating_add(state.request_limit());
            let is_over = || lock(&adapter.changing).restarted.is_some();
            if !waiting::until(state, Some(end), "a restart", is_over) {
                bug_check(Rule::PauseNeverCompleted, format_args!("a restart is not completed"));
            }
            status = lock(&adapter.changing).restarted.unwrap_or(status);
        }
        let succeeded = status == NDIS_STATUS_SUCCESS;
        lock(&adapter.changing).phase = if succeeded { Phase::Running } else { Phase::Paused };
        Network::of(state.clone()).set_up(adapter.if_index, succeeded);
        if !succeeded {
            return Err(status);
        }
        let mut attributes = RestartAttributes::of(adapter);
        state.restart_modules(adapter, &mut attributes);
        state.restart_bindings(adapter, &attributes);
        Ok(())
    }

    /// Pauses the protocols above an adapter, the modules and then the miniport.
    pub fn pause_stack(self: &Arc<Self>, adapter: &Arc<Adapter>, reason: u32) {
        let state = self;
        // From above to below: the protocols first.
        state.pause_bindings(adapter, reason);
        state.pause_modules(adapter, reason);
        {
            let mut changing = lock(&adapter.changing);
            assert_eq!(changing.phase, Phase::Running, "a test pauses an adapter that runs");
            (changing.phase, changing.pause_returned) = (Phase::Pausing, false);
        }
        let parameters = NDIS_MINIPORT_PAUSE_PARAMETERS {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_DEFAULT,
                NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
                NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1,
            ),
            Flags: 0,
            PauseReason: reason,
        };
        let handler = owed(adapter.handlers.PauseHandler, "PauseHandler");
        let status = adapter.call("MiniportPause", |context| {
            // SAFETY: the driver's own handler and context, and parameters that live until it returns.
            unsafe { handler(context, &raw const parameters) }
        });
        lock(&adapter.changing).pause_returned = true;
        if reason != NDIS_PAUSE_MINIPORT_DEVICE_REMOVE {
            Network::of(state.clone()).set_up(adapter.if_index, false);
        }
        match status {
            NDIS_STATUS_SUCCESS => {
                if adapter.phase() != Phase::Pausing {
                    bug_check(
                        Rule::PauseTooEarly,
                        format_args!("a pause is completed, and MiniportPause succeeds too"),
                    );
                }
                adapter.check_nothing_on_its_way();
                lock(&adapter.changing).phase = Phase::Paused;
            }
            NDIS_STATUS_PENDING => {
                // The protocols are asked for what they keep, and the miniport waits for it.
                while state.give_back_kept(adapter, 3) > 0 {}
                let end = state.machine.now().saturating_add(state.request_limit());
                let is_over = || adapter.phase() == Phase::Paused;
                if !waiting::until(state, Some(end), "a pause", is_over) {
                    bug_check(Rule::PauseNeverCompleted, format_args!("a pause is not completed"));
                }
            }
            other => bug_check(Rule::BadArgument, format_args!("MiniportPause returned {other}, and must not fail")),
        }
        while state.give_back_kept(adapter, 3) > 0 {}
    }
}

impl Nic {
    /// The adapter is there: the network stack hears what it is like, and opens it for consumers of NDK.
    fn join(&self, network: &Network) {
        let (mtu, speed) = self.mtu_and_speed();
        let mut new = NewInterface { mtu, speed, ..NewInterface::ethernet(&self.alias()) };
        // One for packets of IP has none.
        new.mac = self.mac().try_into().unwrap_or_default();
        network.describe(self.if_index(), &new);
        network.set_up(self.if_index(), false);
        if self.adapter.ndk.is_some() {
            network.set_ndk(self.if_index(), Some(Arc::new(Provider(self.adapter.clone()))));
        }
    }

    /// The hardware address that the miniport has reported.
    #[must_use]
    pub fn mac(&self) -> Vec<u8> {
        lock(&self.adapter.changing).attributes.general.as_ref().map(|general| general.mac.clone()).unwrap_or_default()
    }

    /// The MTU and the speed of sending, in bits per second, that the miniport has reported.
    #[must_use]
    pub fn mtu_and_speed(&self) -> (u32, u64) {
        let changing = lock(&self.adapter.changing);
        changing.attributes.general.as_ref().map_or((0, 0), |general| (general.mtu, general.link_speed))
    }

    /// The `NDIS_MAC_OPTION_` bits that the miniport has reported.
    #[must_use]
    pub fn mac_options(&self) -> u32 {
        lock(&self.adapter.changing).attributes.general.as_ref().map_or(0, |general| general.mac_options)
    }

    /// The OIDs that the miniport says it answers.
    #[must_use]
    pub fn supported_oids(&self) -> Vec<u32> {
        let changing = lock(&self.adapter.changing);
        changing.attributes.general.as_ref().map(|general| general.oids.clone()).unwrap_or_default()
    }

    /// Restarts a paused adapter, and what is above it.
    ///
    /// # Errors
    ///
    /// What the miniport says. Then the adapter is still paused.
    ///
    /// # Panics
    ///
    /// If the adapter is not paused, which is the test's fault.
    pub fn restart(&self) -> Result<(), NDIS_STATUS> {
        let _turn = Turn::take(&self.state, &self.adapter);
        self.state.restart_stack(&self.adapter)
    }

    /// Pauses a running adapter, and first what is above it: returns when the pause is complete.
    pub fn pause(&self) {
        let _turn = Turn::take(&self.state, &self.adapter);
        self.state.pause_stack(&self.adapter, NDIS_PAUSE_NDIS_INTERNAL);
    }

    /// Tells the modules and the miniport of an event of its device.
    fn tell(&self, event: NDIS_DEVICE_PNP_EVENT) {
        // On mains power; only the change of the profile has something to say.
        let mut profile = 1_u32;
        let has_more = event == NDIS_DEVICE_PNP_EVENT::POWER_PROFILE_CHANGED;
        let mut event = NET_DEVICE_PNP_EVENT {
            Header: NDIS_OBJECT_HEADER::new(
                NDIS_OBJECT_TYPE_DEFAULT,
                NET_DEVICE_PNP_EVENT_REVISION_1,
                NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1,
            ),
            PortNumber: 0,
            DevicePnPEvent: event,
            InformationBuffer: if has_more { (&raw mut profile).cast() } else { std::ptr::null_mut() },
            InformationBufferLength: if has_more { 4 } else { 0 },
            NdisReserved: [0; 16],
        };
        self.state.device_event_down(&self.adapter, None, &raw mut event);
    }

    /// Removes the adapter in an orderly way: nobody may have it open for NDK, it is paused, and halted.
    pub fn remove(self) {
        self.state.ask_bindings_to_leave(&self.adapter);
        self.tell(NDIS_DEVICE_PNP_EVENT::QUERY_REMOVED);
        self.state.ndk_leaves(&self.adapter);
        self.leave(NDIS_HALT_ACTION::DEVICE_DISABLED);
    }

    /// Removes the adapter, and no consumer of NDK was asked to close it, which no document rules out: who has it open hears of it by
    /// the ends of its connections.
    pub fn remove_untold(self) {
        self.tell(NDIS_DEVICE_PNP_EVENT::QUERY_REMOVED);
        self.leave(NDIS_HALT_ACTION::DEVICE_DISABLED);
    }

    /// Returns true if the miniport has said that the adapter failed for good.
    ///
    /// NDIS removes such an adapter by surprise, which is left to the test.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        lock(&self.adapter.changing).failed
    }

    /// The device is gone, and nobody was asked.
    pub fn surprise_remove(self) {
        self.tell(NDIS_DEVICE_PNP_EVENT::SURPRISE_REMOVED);
        self.state.ndk_leaves(&self.adapter);
        self.leave(NDIS_HALT_ACTION::SURPRISE_REMOVED);
    }

    fn leave(self, action: NDIS_HALT_ACTION) {
        let _turn = Turn::take(&self.state, &self.adapter);
        lock(&self.adapter.changing).ndk_enabled = false;
        // The protocols unbind: the interface goes, with its addresses.
        self.state.unbind_adapter(&self.adapter);
        Network::of(self.state.clone()).remove_interface(self.adapter.if_index);
        self.state.end_oids(&self.adapter);
        if self.adapter.phase() == Phase::Running {
            self.state.pause_stack(&self.adapter, NDIS_PAUSE_MINIPORT_DEVICE_REMOVE);
        }
        self.halt(action);
    }

    fn halt(&self, action: NDIS_HALT_ACTION) {
        let adapter = &self.adapter;
        self.state.detach_modules(adapter);
        // The handle is good until the handler returns.
        lock(&adapter.changing).phase = Phase::Halted;
        let handler = owed(adapter.handlers.HaltHandlerEx, "HaltHandlerEx");
        adapter.call("MiniportHaltEx", |context| {
            // SAFETY: the driver's own handler and context.
            unsafe { handler(context, action) };
        });
        adapter.check_nothing_on_its_way();
        let open = lock(&adapter.changing).ndk_open.len();
        if open > 0 {
            bug_check(Rule::NdkOpenAtHalt, format_args!("consumers of NDK have {open} adapters open after the halt"));
        }
        self.forget("an adapter that is halted");
    }

    /// The adapter is gone: nothing of it may be left.
    fn forget(&self, name: &str) {
        let (state, handle) = (&self.state, self.adapter.handle);
        Network::of(state.clone()).remove_interface(self.adapter.if_index);
        state.locked::<Adapters>().live.remove(&handle);
        state.locked::<Adapters>().halted.insert(handle);
        state.check_nothing_left(|owner| owner.handle == handle, name);
        state.check_no_device(self.adapter.devices[1], name);
    }

    /// The system shuts down, or has met a bug check, in which case nothing may be called.
    pub fn shut_down(&self, action: NDIS_SHUTDOWN_ACTION) {
        let level = if action == NDIS_SHUTDOWN_ACTION::BUG_CHECK { Irql::HIGH_LEVEL } else { Irql::PASSIVE_LEVEL };
        let handler = owed(self.adapter.handlers.ShutdownHandlerEx, "ShutdownHandlerEx");
        let before = machine::raise(level);
        self.adapter.call("MiniportShutdownEx", |context| {
            // SAFETY: the driver's own handler and context.
            unsafe { handler(context, action) };
        });
        machine::lower(before);
    }

    /// Brings the adapter into that state of power, from another one, pausing it before it sleeps unless it said that this is
    /// not wanted. Such a miniport must be quiet by itself when it answers.
    pub fn set_power(&self, power: NDIS_DEVICE_POWER_STATE) -> OidAnswer {
        let _turn = Turn::take(&self.state, &self.adapter);
        let wakes = power == NDIS_DEVICE_POWER_STATE::D0;
        let (pauses, restarts) = {
            let mut changing = lock(&self.adapter.changing);
            let flags = changing.attributes.registration.unwrap_or(0);
            let pauses =
                !wakes && changing.phase == Phase::Running && flags & NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND == 0;
            changing.paused_to_sleep |= pauses;
            changing.sleeps &= !wakes;
            (pauses, wakes && std::mem::take(&mut changing.paused_to_sleep))
        };
        if !wakes {
            self.state.tell_power(&self.adapter, power.0);
        }
        if pauses {
            self.state.pause_stack(&self.adapter, NDIS_PAUSE_LOW_POWER);
        }
        let answer = self.set(OID_PNP_SET_POWER, &power.0.to_le_bytes());
        if answer.status != NDIS_STATUS_SUCCESS {
            // A filter has refused it, and the miniport, which may not, has not heard of it.
            self.stay_in_power(wakes, pauses || restarts);
            return answer;
        }
        if !wakes {
            self.adapter.check_quiet();
            lock(&self.adapter.changing).sleeps = true;
        }
        if wakes {
            self.state.tell_power(&self.adapter, power.0);
        }
        if restarts && self.state.restart_stack(&self.adapter).is_err() {
            bug_check(Rule::NotSimulated, format_args!("an adapter that does not restart when it wakes"));
        }
        if wakes {
            self.tell(NDIS_DEVICE_PNP_EVENT::POWER_PROFILE_CHANGED);
        }
        answer
    }

    /// The adapter stays in the state of power in which it was, and is as it was there: paused for it, or not.
    fn stay_in_power(&self, sleeps: bool, is_paused: bool) {
        if sleeps {
            let mut changing = lock(&self.adapter.changing);
            (changing.sleeps, changing.paused_to_sleep) = (true, is_paused);
            return;
        }
        lock(&self.adapter.changing).paused_to_sleep = false;
        self.state.tell_power(&self.adapter, NDIS_DEVICE_POWER_STATE::D0.0);
        if is_paused && self.state.restart_stack(&self.adapter).is_err() {
            bug_check(Rule::NotSimulated, format_args!("an adapter that does not restart when it stays awake"));
        }
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMRemoveMiniport(handle: NDIS_HANDLE) -> NDIS_STATUS {
    ndis_routine!("NdisMRemoveMiniport", DISPATCH_LEVEL, |state| {
        lock(&state.adapter(handle).changing).failed = true;
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMPauseComplete(handle: NDIS_HANDLE) {
    ndis_routine!("NdisMPauseComplete", DISPATCH_LEVEL, |state| {
        let adapter = state.adapter(handle);
        if adapter.phase() != Phase::Pausing {
            bug_check(Rule::PauseTooEarly, format_args!("a pause is completed that was not begun, or is complete"));
        }
        adapter.check_nothing_on_its_way();
        lock(&adapter.changing).phase = Phase::Paused;
        state.dispatcher.signal();
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMRestartComplete(handle: NDIS_HANDLE, status: NDIS_STATUS) {
    ndis_routine!("NdisMRestartComplete", DISPATCH_LEVEL, |state| {
        let adapter = state.adapter(handle);
        if status == NDIS_STATUS_PENDING {
            bug_check(Rule::BadArgument, format_args!("a restart is completed as pending"));
        }
        let mut changing = lock(&adapter.changing);
        if changing.phase != Phase::Restarting || changing.restarted.is_some() {
            bug_check(Rule::NdisPlace, format_args!("a restart is completed that was not begun, or is complete"));
        }
        changing.restarted = Some(status);
        drop(changing);
        state.dispatcher.signal();
    });
}
