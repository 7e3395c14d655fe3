//! Modules of filters: which are between a miniport and the protocols above it, and where each is in its life.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Acquire},
};

use litemap::LiteMap;
use ndis::{NDIS_OID_REQUEST, NDIS_STATUS};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER,
    status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};

use super::{
    adapter::{Adapter, owed},
    filter::{self, Filter, FrameHandlers, RequestHandlers},
    structure::pointer,
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
};

/// Where a module is between its attach and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModulePhase {
    /// `FilterAttach` runs.
    Attaching,
    Paused,
    /// `FilterRestart` was called and is not complete.
    Restarting,
    Running,
    /// `FilterPause` was called, or is about to be, and is not complete.
    Pausing,
    /// `FilterDetach` was called, or is about to be.
    Detaching,
}

/// What changes of a module.
pub struct Changing {
    pub phase: ModulePhase,
    /// `NdisFSetAttributes` was called.
    pub has_attributes: bool,
    /// `FilterSetModuleOptions` runs.
    pub sets_options: bool,
    pub frames: FrameHandlers,
    /// Handlers for frames that run.
    pub busy: usize,
    /// Requests that it is to answer, or that it has sent and not heard of.
    pub requests: usize,
    /// The outcome of a restart that pended.
    pub restarted: Option<NDIS_STATUS>,
}

/// A filter in the stack of an adapter.
pub struct Module {
    pub handle: usize,
    pub filter: Arc<Filter>,
    pub adapter: Arc<Adapter>,
    /// What the filter calls it.
    pub context: AtomicUsize,
    pub changing: Mutex<Changing>,
    /// It has a request to answer: there is one at a time.
    pub asks: AtomicBool,
}

/// The modules, by their handles, which grow from the bottom of a stack to its top, and those that were detached.
#[derive(Default)]
pub struct Modules {
    pub attached: LiteMap<usize, Arc<Module>>,
    pub detached: Vec<usize>,
    /// The registrations for which a thread of the system changes stacks.
    pub working: Vec<usize>,
}

impl Part for Mutex<Modules> {}

impl Module {
    /// Calls a handler of the filter with its name for the module.
    pub fn call<R>(&self, name: &'static str, work: impl FnOnce(NDIS_HANDLE) -> R) -> R {
        let place = std::ptr::with_exposed_provenance_mut(self.context.load(Acquire));
        context::call(self.filter.owner, name, || work(place))
    }

    /// The handle as the filter has it.
    pub const fn pointer(&self) -> NDIS_HANDLE {
        pointer(self.handle)
    }

    pub fn phase(&self) -> ModulePhase {
        lock(&self.changing).phase
    }

    /// Its handlers for frames.
    pub fn frames(&self) -> FrameHandlers {
        lock(&self.changing).frames
    }

    /// Its handlers for regular requests, or for direct ones.
    pub fn requests(&self, direct: bool) -> RequestHandlers {
        if direct { self.filter.handlers.direct_requests } else { self.filter.handlers.requests }
    }

    /// It is to answer a request, or sends one: it is not detached before that is over. False if it is about to be.
    pub fn begin_request(&self) -> bool {
        let mut changing = lock(&self.changing);
        let takes = changing.phase != ModulePhase::Detaching;
        changing.requests += usize::from(takes);
        takes
    }

    /// That is over.
    pub fn end_request(&self) {
        lock(&self.changing).requests -= 1;
    }

    /// It hears what has become of a request that it has sent.
    pub fn hear(&self, direct: bool, place: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
        let handler = owed(self.requests(direct).complete, "OidRequestCompleteHandler");
        self.call("FilterOidRequestComplete", |context| {
            // SAFETY: the driver's own handler and context, and its own request.
            unsafe { handler(context, place, status) };
        });
        self.end_request();
    }

    /// What a finding calls it.
    pub fn in_words(&self) -> String {
        format!("the filter module {:#x} of {}", self.handle, self.adapter.alias)
    }

    /// A handler for frames is called: `None` if the module is not given any now. One that brings back what the module has passed on is called
    /// in any state.
    pub fn enter(self: &Arc<Self>, state: &Arc<State>, comes_back: bool) -> Option<Inside> {
        let mut changing = lock(&self.changing);
        if !comes_back && changing.phase != ModulePhase::Running {
            return None;
        }
        changing.busy += 1;
        drop(changing);
        Some(Inside { state: state.clone(), module: self.clone() })
    }
}

/// A handler for frames that runs.
pub struct Inside {
    state: Arc<State>,
    module: Arc<Module>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        lock(&self.module.changing).busy -= 1;
        self.state.dispatcher.signal();
    }
}

impl State {
    /// The module with a handle that a filter passes.
    pub fn module(&self, handle: NDIS_HANDLE) -> Arc<Module> {
        let modules = self.locked::<Modules>();
        if let Some(module) = modules.attached.get(&handle.addr()) {
            return module.clone();
        }
        let words =
            if modules.detached.contains(&handle.addr()) { "of a module that is detached" } else { "no module" };
        drop(modules);
        bug_check(Rule::BadHandle, format_args!("{handle:p} is {words} of a filter"))
    }

    /// A filter changes its handlers for frames of one module. `None` if that is no handle of a module.
    pub fn set_frame_handlers(&self, handle: NDIS_HANDLE, handlers: *const NDIS_OBJECT_HEADER) -> Option<NDIS_STATUS> {
        let module = self.locked::<Modules>().attached.get(&handle.addr()).cloned()?;
        if !lock(&module.changing).sets_options {
            bug_check(Rule::NdisPlace, format_args!("optional handlers are set outside of FilterSetModuleOptions"));
        }
        // SAFETY: the driver's structure, which lives until the call returns.
        let frames = unsafe { filter::read_partial(handlers) };
        if self.strikes() {
            return Some(NDIS_STATUS_RESOURCES);
        }
        lock(&module.changing).frames = frames;
        Some(NDIS_STATUS_SUCCESS)
    }

    /// The modules of an adapter that take part, from the bottom to the top.
    pub fn modules_of(&self, adapter: &Adapter) -> Vec<Arc<Module>> {
        let modules = self.locked::<Modules>();
        let is_there = |module: &&Arc<Module>| {
            module.adapter.handle == adapter.handle
                && ![ModulePhase::Attaching, ModulePhase::Detaching].contains(&module.phase())
        };
        modules.attached.values().filter(is_there).cloned().collect()
    }

    /// The nearest module above another one, or above the miniport, that `wants` it.
    pub fn next_above(
        &self,
        adapter: &Adapter,
        from: Option<&Module>,
        wants: impl Fn(&Module) -> bool,
    ) -> Option<Arc<Module>> {
        let from = from.map_or(0, |module| module.handle);
        self.modules_of(adapter).into_iter().find(|module| module.handle > from && wants(module))
    }

    /// The nearest module below another one, or below the protocols, that `wants` it.
    pub fn next_below(
        &self,
        adapter: &Adapter,
        from: Option<&Module>,
        wants: impl Fn(&Module) -> bool,
    ) -> Option<Arc<Module>> {
        let from = from.map_or(usize::MAX, |module| module.handle);
        self.modules_of(adapter).into_iter().rev().find(|module| module.handle < from && wants(module))
    }
}
