//! How modules of filters are attached to adapters, paused, restarted and detached.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Release},
    },
};

use ndis::{DEVICE_OBJECT, NDIS_STATUS};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use wdk_bindings::UNICODE_STRING;

use super::{
    adapter::{Adapter, Adapters, Phase, owed},
    attributes::{General, whole},
    bind::{Turn, name_of},
    filter::Filter,
    module::{Changing, Module, ModulePhase, Modules},
    pool::Pools,
    restart::Attributes,
    structure::ndis_routine,
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    text, waiting,
    wdm::system_thread,
};

/// `NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES`, `NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS`, `NDIS_OBJECT_TYPE_FILTER_PAUSE_PARAMETERS`,
/// `NDIS_OBJECT_TYPE_FILTER_RESTART_PARAMETERS`.
const ATTRIBUTES_TYPE: u8 = 0x8D;
const ATTACH_TYPE: u8 = 0x99;
const PAUSE_TYPE: u8 = 0x9A;
const RESTART_TYPE: u8 = 0x9B;
/// `NDIS_PAUSE_ATTACH_FILTER`, `NDIS_PAUSE_DETACH_FILTER`, `NDIS_PAUSE_FILTER_RESTART_STACK`.
const PAUSE_ATTACH: u32 = 0x10;
const PAUSE_DETACH: u32 = 0x20;
const PAUSE_RESTART: u32 = 0x40;

/// `NDIS_FILTER_ATTACH_PARAMETERS` from NDIS 6.30 on, of an Ethernet adapter that offers nothing.
#[repr(C)]
struct AttachParameters {
    header: NDIS_OBJECT_HEADER,
    index: u32,
    luid: u64,
    module: *const UNICODE_STRING,
    base_index: u32,
    instance: *const UNICODE_STRING,
    base: *const UNICODE_STRING,
    connect_state: u32,
    duplex_state: u32,
    /// Of sending and of receiving.
    speeds: [u64; 2],
    medium: u32,
    physical_medium: u32,
    special: *const c_void,
    offload: *const c_void,
    mac_length: u16,
    mac: [u8; 32],
    base_luid: u64,
    lower_index: u32,
    lower_luid: u64,
    flags: u32,
    splitting: *const c_void,
    receive_filters: *const c_void,
    device: *mut DEVICE_OBJECT,
    switch: *const c_void,
    has_connector: u8,
    virtualization: *const c_void,
    switches: *const c_void,
}

/// `NDIS_FILTER_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FilterAttributes {
    header: NDIS_OBJECT_HEADER,
    flags: u32,
}

/// `NDIS_FILTER_PAUSE_PARAMETERS`.
#[repr(C)]
struct PauseParameters {
    header: NDIS_OBJECT_HEADER,
    flags: u32,
    reason: u32,
}

/// `NDIS_FILTER_RESTART_PARAMETERS`.
#[repr(C)]
struct RestartParameters {
    header: NDIS_OBJECT_HEADER,
    medium: u32,
    physical_medium: u32,
    attributes: *mut c_void,
    lower_index: u32,
    lower_luid: u64,
    flags: u32,
}

// The fields of the DDI reference in their order, as C lays them out.
const _: () = {
    assert!(size_of::<AttachParameters>() == 224, "the last field is a pointer at 216");
    assert!(std::mem::offset_of!(AttachParameters, mac) == 98, "behind a length of two bytes at 96");
    assert!(std::mem::offset_of!(AttachParameters, flags) == 160, "the end of the first revision");
    assert!(size_of::<FilterAttributes>() == 8, "a header and flags");
    assert!(size_of::<PauseParameters>() == 12, "a header, flags and a reason");
    assert!(std::mem::offset_of!(RestartParameters, flags) == 40, "behind an identifier at 32");
};

impl State {
    /// Attaches every filter to an adapter that has come and is paused.
    pub fn attach_filters(self: &Arc<Self>, adapter: &Arc<Adapter>) {
        for filter in self.filters() {
            self.attach(&filter, adapter);
        }
    }

    /// Attaches a filter that has just registered to the adapters that are there, by a thread of the system.
    pub fn attach_filter_soon(self: &Arc<Self>, filter: &Arc<Filter>) {
        let of_thread = filter.clone();
        self.change_soon(filter, move |state| {
            let adapters: Vec<_> = state.locked::<Adapters>().live.values().cloned().collect();
            for adapter in adapters {
                let _turn = Turn::take(state, &adapter);
                state.while_paused(&adapter, PAUSE_ATTACH, || state.attach(&of_thread, &adapter));
            }
        });
    }

    /// Has a thread of the system change stacks for a filter, which waits for it before its registration ends.
    fn change_soon(self: &Arc<Self>, filter: &Filter, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let (state, handle) = (self.clone(), filter.handle);
        self.locked::<Modules>().working.push(handle);
        system_thread::spawn_for_work_item(self, filter.owner, move || {
            work(&state);
            let mut modules = state.locked::<Modules>();
            if let Some(at) = modules.working.iter().position(|&one| one == handle) {
                modules.working.swap_remove(at);
            }
            drop(modules);
            state.dispatcher.signal();
        });
    }

    /// The filter leaves: its modules are detached.
    pub fn detach_filter(self: &Arc<Self>, filter: usize) {
        waiting::until(self, None, "NDIS, for a filter that is attached", || {
            !self.locked::<Modules>().working.contains(&filter)
        });
        let all: Vec<_> = self.locked::<Modules>().attached.values().cloned().collect();
        for module in all.iter().filter(|module| module.filter.handle == filter) {
            let _turn = Turn::take(self, &module.adapter);
            self.while_paused(&module.adapter, PAUSE_DETACH, || self.detach(module));
        }
    }

    /// Changes the stack of an adapter, which is paused meanwhile. Nothing happens to an adapter that comes or goes.
    fn while_paused(self: &Arc<Self>, adapter: &Arc<Adapter>, reason: u32, work: impl FnOnce()) {
        match adapter.phase() {
            Phase::Running => {
                self.pause_stack(adapter, reason);
                work();
                // An adapter that does not restart stays paused.
                let _ = self.restart_stack(adapter);
            }
            Phase::Paused => work(),
            _ => {}
        }
    }

    /// Attaches a filter to an adapter that is paused, unless it is attached, or refuses.
    fn attach(self: &Arc<Self>, filter: &Arc<Filter>, adapter: &Arc<Adapter>) {
        let is_attached = |module: &Arc<Module>| module.filter.handle == filter.handle;
        if self.modules_of(adapter).iter().any(is_attached) {
            return;
        }
        let module = Arc::new(Module {
            handle: self.new_handle(),
            filter: filter.clone(),
            adapter: adapter.clone(),
            context: AtomicUsize::new(0),
            changing: Mutex::new(Changing {
                phase: ModulePhase::Attaching,
                has_attributes: false,
                sets_options: false,
                frames: filter.handlers.frames,
                busy: 0,
                requests: 0,
                restarted: None,
            }),
            asks: AtomicBool::new(false),
        });
        self.locked::<Modules>().attached.insert(module.handle, module.clone());
        let status = call_attach(&module);
        let has_attributes = lock(&module.changing).has_attributes;
        match status {
            NDIS_STATUS_SUCCESS if !has_attributes => {
                bug_check(Rule::AttributeOrder, format_args!("a filter attaches without NdisFSetAttributes"));
            }
            NDIS_STATUS_SUCCESS => lock(&module.changing).phase = ModulePhase::Paused,
            status if status.is_success() => {
                bug_check(Rule::BadArgument, format_args!("FilterAttach returned {status}"));
            }
            // The stack lives on without a filter that refuses.
            _ => self.forget_module(&module, "a filter module that was not attached"),
        }
    }

    /// Detaches a module that is paused.
    fn detach(self: &Arc<Self>, module: &Arc<Module>) {
        {
            let mut changing = lock(&module.changing);
            if changing.phase == ModulePhase::Detaching {
                return;
            }
            changing.phase = ModulePhase::Detaching;
        }
        // Requests pass by from now on; those that it has must come to their end.
        let end = self.machine.now().saturating_add(self.request_limit());
        let is_over = || lock(&module.changing).requests == 0;
        if !waiting::until(self, Some(end), "the requests of a filter module", is_over) {
            let words = module.in_words();
            bug_check(Rule::OidNeverCompleted, format_args!("{words} is to be detached, and has requests to complete"));
        }
        let handler = owed(module.filter.handlers.detach, "DetachHandler");
        module.call("FilterDetach", |context| {
            // SAFETY: the driver's own handler and context.
            unsafe { handler(context) };
        });
        self.forget_module(module, "a filter module that is detached");
    }

    /// A module is gone: nothing of it may be left.
    fn forget_module(&self, module: &Module, name: &str) {
        let mut modules = self.locked::<Modules>();
        modules.attached.remove(&module.handle);
        modules.detached.push(module.handle);
        drop(modules);
        self.check_nothing_left(|owner| owner.handle == module.handle, name);
        self.check_no_clones(module.handle, name);
    }

    /// Detaches all modules of an adapter that is paused and goes, from the top to the bottom.
    pub fn detach_modules(self: &Arc<Self>, adapter: &Adapter) {
        for module in self.modules_of(adapter).iter().rev() {
            self.detach(module);
        }
    }

    /// Pauses the modules of an adapter from the top to the bottom: each is quiet when this returns.
    pub fn pause_modules(self: &Arc<Self>, adapter: &Arc<Adapter>, reason: u32) {
        let modules = self.modules_of(adapter);
        if modules.is_empty() {
            return;
        }
        // The protocols of the test above them first.
        lock(&adapter.changing).quiet = true;
        while self.give_back_kept(adapter, 3) > 0 {}
        let end = self.machine.now().saturating_add(self.request_limit());
        if !waiting::until(self, Some(end), "the sends above a filter module", || self.has_no_sends(adapter)) {
            bug_check(
                Rule::NblNeverCompleted,
                format_args!("a stack is to be paused, and sent lists are not completed"),
            );
        }
        for module in modules.iter().rev().filter(|module| module.phase() == ModulePhase::Running) {
            self.pause_module(module, reason);
        }
    }

    fn pause_module(self: &Arc<Self>, module: &Arc<Module>, reason: u32) {
        lock(&module.changing).phase = ModulePhase::Pausing;
        // Nothing new comes now. What is in the middle of something hears of the pause when that is over.
        waiting::until(self, None, "the handlers of a filter module", || lock(&module.changing).busy == 0);
        let header = NDIS_OBJECT_HEADER::new(PAUSE_TYPE, 1, 12);
        let mut parameters = PauseParameters { header, flags: 0, reason };
        let handler = owed(module.filter.handlers.pause, "PauseHandler");
        let status = module.call("FilterPause", |context| {
            // SAFETY: the driver's own handler and context, and parameters that live until it returns.
            unsafe { handler(context, (&raw mut parameters).cast()) }
        });
        match status {
            NDIS_STATUS_SUCCESS => self.end_pause(module, "FilterPause succeeds"),
            NDIS_STATUS_PENDING => {
                let end = self.machine.now().saturating_add(self.request_limit());
                let is_over = || module.phase() == ModulePhase::Paused;
                if !waiting::until(self, Some(end), "the pause of a filter module", is_over) {
                    let left = self.lists_of_module(module);
                    bug_check(
                        Rule::PauseNeverCompleted,
                        format_args!("{} does not complete its pause{left}", module.in_words()),
                    );
                }
            }
            other => bug_check(Rule::BadArgument, format_args!("FilterPause returned {other}, and must not fail")),
        }
    }

    /// A pause is complete: the module has no list, and none of its own is on its way.
    fn end_pause(&self, module: &Module, what: &str) {
        if module.phase() != ModulePhase::Pausing {
            bug_check(Rule::PauseTooEarly, format_args!("{what}, and no pause was begun, or it is complete"));
        }
        let left = self.lists_of_module(module);
        if !left.is_empty() {
            bug_check(Rule::PauseTooEarly, format_args!("{} is paused{left}", module.in_words()));
        }
        lock(&module.changing).phase = ModulePhase::Paused;
        self.dispatcher.signal();
    }

    /// The lists that a module has or waits for, for a finding.
    fn lists_of_module(&self, module: &Module) -> String {
        let lists = self.locked::<Pools>().of_module(module.handle);
        if lists.is_empty() {
            return String::new();
        }
        let names: Vec<String> = lists.iter().map(|list| format!("{list:#x}")).collect();
        format!(", and these lists are with it, or are its own and on their way: {}", names.join(", "))
    }

    /// Restarts the modules of an adapter from the bottom to the top. One that does not restart is detached.
    pub fn restart_modules(self: &Arc<Self>, adapter: &Arc<Adapter>, attributes: &mut Attributes) {
        for module in self.modules_of(adapter) {
            if module.phase() == ModulePhase::Paused && self.restart_module(&module, attributes) != NDIS_STATUS_SUCCESS
            {
                self.detach(&module);
            }
        }
        lock(&adapter.changing).quiet = false;
    }

    fn restart_module(self: &Arc<Self>, module: &Arc<Module>, attributes: &mut Attributes) -> NDIS_STATUS {
        if let Some(handler) = module.filter.handlers.set_module_options {
            lock(&module.changing).sets_options = true;
            let status = module.call("FilterSetModuleOptions", |context| {
                // SAFETY: the driver's own handler and context.
                unsafe { handler(context) }
            });
            lock(&module.changing).sets_options = false;
            if status != NDIS_STATUS_SUCCESS {
                return status;
            }
        }
        {
            let mut changing = lock(&module.changing);
            (changing.phase, changing.restarted) = (ModulePhase::Restarting, None);
        }
        let adapter = &module.adapter;
        let media = lock(&adapter.changing).attributes.general.as_ref().map(General::media);
        let (medium, physical_medium) = media.unwrap_or_default();
        let mut parameters = RestartParameters {
            header: NDIS_OBJECT_HEADER::new(RESTART_TYPE, 1, 44),
            medium,
            physical_medium,
            attributes: attributes.first(),
            lower_index: adapter.if_index,
            lower_luid: adapter.luid,
            flags: 0,
        };
        let handler = owed(module.filter.handlers.restart, "RestartHandler");
        let mut status = module.call("FilterRestart", |context| {
            // SAFETY: the driver's own handler and context, and parameters that live until it returns.
            unsafe { handler(context, (&raw mut parameters).cast()) }
        });
        attributes.set_first(parameters.attributes);
        if status == NDIS_STATUS_PENDING {
            let end = self.machine.now().saturating_add(self.request_limit());
            let is_over = || lock(&module.changing).restarted.is_some();
            if !waiting::until(self, Some(end), "the restart of a filter module", is_over) {
                bug_check(
                    Rule::PauseNeverCompleted,
                    format_args!("{} does not complete its restart", module.in_words()),
                );
            }
            status = lock(&module.changing).restarted.unwrap_or(status);
        }
        let runs = status == NDIS_STATUS_SUCCESS;
        lock(&module.changing).phase = if runs { ModulePhase::Running } else { ModulePhase::Paused };
        status
    }
}

/// Calls a filter's attach handler.
fn call_attach(module: &Module) -> NDIS_STATUS {
    let adapter = &module.adapter;
    let units = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    let names = [
        units(&format!("{{00000000-0000-0000-0000-{:012X}}}-{:#x}", adapter.if_index, module.handle)),
        units(&adapter.alias),
        units(&name_of(adapter)),
    ];
    let [name, instance, base] = [0, 1, 2].map(|index| text::unicode(&names[index]));
    let mut parameters = {
        let changing = lock(&adapter.changing);
        let general = changing.attributes.general.as_ref();
        let (mac_length, mac) = general.map_or((0, [0; 32]), General::address);
        let (medium, physical_medium) = general.map_or((0, 0), General::media);
        let none = std::ptr::null();
        AttachParameters {
            header: NDIS_OBJECT_HEADER::new(ATTACH_TYPE, 4, 224),
            index: adapter.if_index,
            luid: adapter.luid,
            module: &raw const name,
            base_index: adapter.if_index,
            instance: &raw const instance,
            base: &raw const base,
            connect_state: 1,
            duplex_state: 2,
            speeds: [general.map_or(0, |general| general.link_speed); 2],
            medium,
            physical_medium,
            special: none,
            offload: none,
            mac_length,
            mac,
            base_luid: adapter.luid,
            lower_index: adapter.if_index,
            lower_luid: adapter.luid,
            flags: 0,
            splitting: none,
            receive_filters: none,
            device: std::ptr::with_exposed_provenance_mut(adapter.devices[0]),
            switch: none,
            has_connector: 1,
            virtualization: none,
            switches: none,
        }
    };
    let handler = owed(module.filter.handlers.attach, "AttachHandler");
    let context: NDIS_HANDLE = std::ptr::with_exposed_provenance_mut(module.filter.context);
    context::call(module.filter.owner, "FilterAttach", || {
        // SAFETY: the driver's own handler and context, and parameters that live until it returns.
        unsafe { handler(module.pointer(), context, (&raw mut parameters).cast()) }
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFSetAttributes(
    handle: NDIS_HANDLE,
    context: NDIS_HANDLE,
    attributes: *const NDIS_OBJECT_HEADER,
) -> NDIS_STATUS {
    ndis_routine!("NdisFSetAttributes", PASSIVE_LEVEL, |state| {
        let module = state.module(handle);
        if module.phase() != ModulePhase::Attaching {
            bug_check(Rule::NdisPlace, format_args!("attributes of a filter are set outside of FilterAttach"));
        }
        if attributes.is_null() {
            bug_check(Rule::BadArgument, format_args!("NDIS_FILTER_ATTRIBUTES is not there"));
        }
        // SAFETY: the driver's structure, which begins with a header.
        let header = unsafe { attributes.read() };
        if (header.Type, header.Revision) != (ATTRIBUTES_TYPE, 1)
            || usize::from(header.Size) < size_of::<FilterAttributes>()
        {
            bug_check(Rule::NdisHeader, format_args!("NDIS_FILTER_ATTRIBUTES begins with {header:?}"));
        }
        // SAFETY: the header says that the structure is all there.
        let flags = unsafe { whole::<FilterAttributes>(attributes).read_unaligned() }.flags;
        if flags != 0 {
            bug_check(Rule::BadArgument, format_args!("attributes of a filter with the flags {flags:#x}"));
        }
        if lock(&module.changing).has_attributes {
            bug_check(Rule::AttributeOrder, format_args!("attributes of a filter are set twice"));
        }
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        module.context.store(context.expose_provenance(), Release);
        lock(&module.changing).has_attributes = true;
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFPauseComplete(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFPauseComplete", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        state.end_pause(&module, "NdisFPauseComplete is called");
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFRestartComplete(handle: NDIS_HANDLE, status: NDIS_STATUS) {
    ndis_routine!("NdisFRestartComplete", PASSIVE_LEVEL, |state| {
        let module = state.module(handle);
        if status == NDIS_STATUS_PENDING {
            bug_check(Rule::BadArgument, format_args!("a restart is completed as pending"));
        }
        let mut changing = lock(&module.changing);
        if changing.phase != ModulePhase::Restarting || changing.restarted.is_some() {
            bug_check(Rule::NdisPlace, format_args!("a restart is completed that was not begun, or is complete"));
        }
        changing.restarted = Some(status);
        drop(changing);
        state.dispatcher.signal();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFRestartFilter(handle: NDIS_HANDLE) -> NDIS_STATUS {
    ndis_routine!("NdisFRestartFilter", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        let of_thread = module.clone();
        state.change_soon(&module.filter, move |state| {
            let _turn = Turn::take(state, &of_thread.adapter);
            // A paused stack restarts later, and one that is gone never.
            if of_thread.phase() == ModulePhase::Running {
                state.while_paused(&of_thread.adapter, PAUSE_RESTART, || ());
            }
        });
        NDIS_STATUS_SUCCESS
    })
}
