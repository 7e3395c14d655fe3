//! Duties at memory regions, windows and mappings (`NDKPI 7.4` to `NDKPI 7.6`).

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use engine::os::SpinLock;
use fallible::Arc;
use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_LOGICAL_ADDRESS_MAPPING,
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_RDMA_READ_SINK, NDK_OBJECT_TYPE, NDK_OP_FLAG_RDMA_READ_SINK, NDK_SGE,
    op_flags,
};

use super::{
    Adviser, Finding, Node, Sink, State,
    node::{Body, MrNode, RegionState, Registration, body},
    queue::Queue,
};
use crate::{Args, Event, Function, InterposeOs, ObjectId, ObjectRef, Outcome};

const PAGE: usize = 4096;

/// The region of a local token.
fn region_of<O: InterposeOs>(node: &Node<O>, token: u32) -> Option<State<O>> {
    node.adapter_node()?.tokens.with(|tokens| tokens.get(token).map(|entry| entry.node.clone()))
}

/// What a post has to know of a local token.
struct Named {
    id: ObjectId,
    /// The region is of the domain of who posts.
    is_ours: bool,
    registration: Registration,
}

/// Returns true if two objects belong to one protection domain.
fn same_domain<O: InterposeOs>(first: Option<&State<O>>, second: Option<&State<O>>) -> bool {
    first.map(|domain| domain.id) == second.map(|domain| domain.id)
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// A call that changes the state of a region.
    pub(super) fn region_call(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(mr) = body!(node, Mr) else { return };
        let now = mr.registration.with(|registration| *registration);
        let fits = match event.function {
            Function::RegisterMr => !mr.is_fast && now.state == RegionState::New,
            Function::DeregisterMr => !mr.is_fast && now.state == RegionState::Registered,
            _ => mr.is_fast && now.state == RegionState::New,
        };
        if !fits {
            let kind = if mr.is_fast { "for fast registration" } else { "plain" };
            let what = format_args!("{} of a region that is {kind} and {:?}", event.function.name(), now.state);
            self.found(Finding::RegionState, node, event.function, what);
            return;
        }
        if event.function == Function::DeregisterMr {
            self.must_not_be_in_flight(event, mr);
        }
        let _ = node.change(|registration| {
            registration.before = registration.state;
            registration.state = RegionState::Changing;
            registration.call = event.call;
            match event.args {
                Args::RegisterMr { base, length, flags, .. } => {
                    registration.next = RegionState::Registered;
                    registration.base = base;
                    registration.length = length as u64;
                    registration.local_write = flags & NDK_MR_FLAG_ALLOW_LOCAL_WRITE != 0;
                    registration.read_sink = flags & NDK_MR_FLAG_RDMA_READ_SINK != 0;
                    registration.was_invalidated = false;
                }
                Args::InitializeFastRegisterMr { pages, remote_access } => {
                    registration.next = RegionState::Initialised;
                    registration.pages = pages;
                    registration.remote_access = remote_access;
                }
                _ => registration.next = RegionState::New,
            }
        });
    }

    pub(super) fn must_not_be_in_flight(&self, event: &Event<'_, State<O>>, mr: &MrNode<O>) {
        let Some(token) = mr.registration.with(|registration| registration.token) else { return };
        let Some(pd) = event.object.state.domain() else { return };
        let elements_of = |queue: &Queue| if queue.is_blurred() { 0 } else { queue.elements_of(token) };
        let in_flight: usize = pd.queues.with(|queues| {
            let each = queues.iter().map(|node| match &node.body {
                Body::Qp(qp) => elements_of(&qp.initiator) + elements_of(&qp.receive),
                Body::Srq(srq) => elements_of(&srq.receive),
                _ => 0,
            });
            each.sum()
        });
        if in_flight > 0 {
            let what = format_args!("{in_flight} elements of requests in flight name it");
            self.found(Finding::MemoryInFlight, event.object.state, event.function, what);
        }
    }

    /// Such a call has ended.
    pub(super) fn region_done(event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let forgotten = node.change(|registration| {
            if registration.state != RegionState::Changing || registration.call != event.call {
                return None;
            }
            let is_done = event.outcome.status().is_success();
            registration.state = if is_done { registration.next } else { registration.before };
            if registration.state == RegionState::New { registration.token.take() } else { None }
        });
        if let Some(token) = forgotten.flatten() {
            Self::forget_token(node, token);
        }
    }

    pub(super) fn forget_token(node: &State<O>, token: u32) {
        let Some(adapter) = node.adapter_node() else { return };
        let removed = adapter.tokens.with(|tokens| tokens.remove(token, node));
        drop(removed);
    }

    /// The provider has told a token.
    pub(super) fn learn_token(event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Outcome::Token(token) = event.outcome else { return };
        if let Some(pd) = body!(node, Pd) {
            pd.privileged.store(u64::from(token) + 1, SeqCst);
            return;
        }
        let (Some(mr), Some(adapter)) = (body!(node, Mr), node.adapter_node()) else { return };
        let replaced = mr.registration.with(|registration| match registration.state {
            RegionState::Registered | RegionState::Initialised => {
                let before = registration.token.replace(token);
                let replaced = adapter.tokens.with(|tokens| {
                    let forgotten = before.filter(|&before| before != token);
                    let forgotten = forgotten.and_then(|before| tokens.remove(before, node));
                    (forgotten, tokens.insert(token, node.clone(), *registration))
                });
                Some(replaced)
            }
            _ => None,
        });
        // References, which are given back without a lock.
        drop(replaced);
    }

    /// The provider has told the token that peers are given.
    pub(super) fn learn_remote_token(event: &Event<'_, State<O>>) {
        if let Outcome::Token(token) = event.outcome {
            let _ = event.object.state.change(|registration| registration.remote_token = Some(token));
        }
    }

    /// Looks at the elements of a request of an object whose protection domain is `domain`.
    pub(super) fn check_elements(
        &self,
        node: &State<O>,
        function: Function,
        elements: &[NDK_SGE],
        domain: Option<&State<O>>,
        is_written: bool,
    ) {
        let Some(adapter) = node.adapter_node() else { return };
        let is_read = function == Function::Read;
        let needs_sink = is_read && adapter.info.AdapterFlags & SINK_NOT_REQUIRED == 0;
        let privileged = domain.and_then(|domain| body!(domain, Pd)).map_or(0, |pd| pd.privileged.load(Relaxed));
        for element in elements.iter().filter(|element| element.Length > 0) {
            let token = element.MemoryRegionToken;
            if u64::from(token) + 1 == privileged {
                if needs_sink {
                    let what = format_args!("the privileged token is the target of a read");
                    self.found(Finding::ReadSink, node, function, what);
                }
                continue;
            }
            let (start, length) = (element.virtual_address().addr() as u64, u64::from(element.Length));
            // All is well with nearly every element: then nothing is copied.
            let named = adapter.tokens.with(|tokens| {
                let Some(entry) = tokens.get(token) else { return Some(None) };
                let (now, is_ours) = (&entry.registration, same_domain(entry.node.parent.as_ref(), domain));
                let is_good = is_ours && now.state == RegionState::Registered && now.is_unsure
                    || is_ours
                        && now.state == RegionState::Registered
                        && is_within(now, start, length)
                        && (now.local_write || !is_written)
                        && (now.read_sink || !needs_sink);
                (!is_good).then(|| Some(Named { id: entry.node.id, is_ours, registration: *now }))
            });
            let Some(named) = named else { continue };
            let Some(region) = named else {
                let what = format_args!("no region has the local token {token:#x}");
                self.found(Finding::UnknownToken, node, function, what);
                continue;
            };
            if !region.is_ours {
                let what = format_args!("{} is of another domain", region.id);
                self.found(Finding::OtherDomain, node, function, what);
            }
            self.check_region((node, function), &region, element, is_written, needs_sink);
        }
    }

    /// Something is wrong with an element.
    #[cold]
    fn check_region(
        &self,
        (node, function): (&State<O>, Function),
        region: &Named,
        element: &NDK_SGE,
        is_written: bool,
        needs_sink: bool,
    ) {
        let now = &region.registration;
        match now.state {
            RegionState::Registered if now.is_unsure => return,
            RegionState::Registered => {}
            RegionState::Initialised if now.was_invalidated => {
                let what = format_args!("{} is invalidated", region.id);
                self.found(Finding::TokenAfterInvalidate, node, function, what);
                return;
            }
            _ => {
                let what = format_args!("{} is not registered ({:?})", region.id, now.state);
                self.found(Finding::UnknownToken, node, function, what);
                return;
            }
        }
        let (address, length) = (element.virtual_address().addr() as u64, u64::from(element.Length));
        if !is_within(now, address, length) {
            let what = format_args!("{length} bytes at {address:#x}, {} has {} bytes", region.id, now.length);
            self.found(Finding::OutsideRegistration, node, function, what);
        }
        if is_written && !now.local_write {
            let what = format_args!("{} has no local write", region.id);
            self.found(Finding::NoLocalWrite, node, function, what);
        }
        if needs_sink && !now.read_sink {
            let what = format_args!("{} is no read sink", region.id);
            self.found(Finding::ReadSink, node, function, what);
        }
    }

    #[inline(never)]
    pub(super) fn check_bind(&self, event: &Event<'_, State<O>>) {
        self.check_bind_length(event);
        self.check_window(event);
    }

    fn check_bind_length(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let most = node.adapter_node().map_or(usize::MAX, |adapter| adapter.info.MaxWindowSize);
        if let Args::Bind { length, .. } = event.args
            && length > most
        {
            let what = format_args!("{length} bytes, a window has at most {most}");
            self.found(Finding::AboveLimit, node, event.function, what);
        }
    }

    fn check_window(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Args::Bind { address, length, flags, .. } = event.args else { return };
        let (Some(region), Some(window)) =
            (event.related[0].map(|object| object.state), event.related[1].map(|object| object.state))
        else {
            return;
        };
        for object in [region, window] {
            if !matches!(object.id.kind, NDK_OBJECT_TYPE::MR | NDK_OBJECT_TYPE::MW) {
                return;
            }
            if !same_domain(object.parent.as_ref(), node.parent.as_ref()) {
                let what = format_args!("{} is of another domain", object.id);
                self.found(Finding::OtherDomain, node, event.function, what);
            }
        }
        let Some(mr) = body!(region, Mr) else { return };
        let now = mr.registration.with(|registration| *registration);
        if now.state != RegionState::Registered {
            let what = format_args!("{} is not registered ({:?})", region.id, now.state);
            self.found(Finding::BindRights, node, event.function, what);
            return;
        }
        if now.is_unsure {
            return;
        }
        if op_flags::allows_remote_write(flags) && !now.local_write {
            let what = format_args!("remote write of {}, which has no local write", region.id);
            self.found(Finding::BindRights, node, event.function, what);
        }
        if !is_within(&now, address as u64, length as u64) {
            let what = format_args!("{length} bytes at {address:#x}, {} has {} bytes", region.id, now.length);
            self.found(Finding::BindRights, node, event.function, what);
        }
    }

    #[inline(never)]
    pub(super) fn check_fast_register(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Args::FastRegister { pages, first_byte, length, base, flags, .. } = event.args else { return };
        if pages.is_missing() {
            let what = format_args!("{} pages and no list", pages.count());
            self.found(Finding::MissingList, node, event.function, what);
        }
        let Some(region) = event.related[0].map(|object| object.state) else { return };
        let Some(mr) = body!(region, Mr) else { return };
        if !same_domain(region.parent.as_ref(), node.parent.as_ref()) {
            self.found(Finding::OtherDomain, node, event.function, format_args!("{} is of another domain", region.id));
        }
        let now = mr.registration.with(|registration| *registration);
        if !mr.is_fast || matches!(now.state, RegionState::New | RegionState::Changing) {
            let what = format_args!("{} is not initialised for fast registration ({:?})", region.id, now.state);
            self.found(Finding::RegionState, node, event.function, what);
            return;
        }
        let offset = first_byte as usize;
        let room = (pages.count() as usize).saturating_mul(PAGE).saturating_sub(offset);
        let remote = op_flags::allows_remote_read(flags) || op_flags::allows_remote_write(flags);
        let wrong = if pages.count() > now.pages {
            Some("more pages than the initialisation allows")
        } else if offset >= PAGE {
            Some("FBO is not below a page")
        } else if length > room {
            Some("a length beyond the pages")
        } else if base % PAGE != offset {
            Some("a base that is not FBO within its page")
        } else if remote && !now.remote_access {
            Some("remote rights, initialised without remote access")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let what = format_args!("{wrong}: {} pages, FBO {offset}, {length} bytes, base {base:#x}", pages.count());
            self.found(Finding::FastRegister, node, event.function, what);
        }
        let is_again = now.state == RegionState::Registered;
        if is_again && Self::is_certain(node, &now) {
            let what = format_args!("{} is registered, and was not invalidated since", region.id);
            self.found(Finding::RegionState, node, event.function, what);
        }
        // Valid as soon as the post returns, and maybe sooner: so it counts from here, unless the post fails.
        let _ = region.change(|registration| {
            registration.before = registration.state;
            registration.call = event.call;
            registration.state = RegionState::Registered;
            registration.was_invalidated = false;
            registration.base = Some(base as u64);
            registration.length = length as u64;
            registration.local_write = op_flags::allows_local_write(flags);
            registration.read_sink = flags & NDK_OP_FLAG_RDMA_READ_SINK != 0;
            registration.by = node.id.number;
            registration.is_remote = remote;
            registration.list = pages.elements().as_ptr().addr();
            // The request of the second fails, and the first is in force; or it does not.
            registration.is_unsure = is_again;
        });
    }

    /// It is certain that a fast registration is in force which was posted on this queue pair: all that was posted there is carried out, and
    /// if a peer had invalidated it, the polls would have said so.
    fn is_certain(node: &State<O>, registration: &Registration) -> bool {
        let is_carried_out = registration.by == node.id.number
            && body!(node, Qp).is_some_and(|qp| {
                !qp.is_over.load(SeqCst) && !qp.initiator.is_blurred() && qp.was_connected.load(SeqCst)
            });
        let is_blind = |node: &State<O>| {
            let cq = body!(node, Qp).and_then(|qp| qp.receive_cq.as_ref()).and_then(|cq| body!(cq, Cq));
            cq.is_some_and(|cq| cq.is_blind.load(SeqCst))
        };
        let is_seen = || {
            !registration.is_remote
                || node.domain().is_some_and(|pd| pd.queues.with(|queues| !queues.iter().any(is_blind)))
        };
        is_carried_out && !registration.is_unsure && is_seen()
    }

    #[inline(never)]
    pub(super) fn check_invalidate(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(object) = event.related[0].map(|object| object.state) else { return };
        if !matches!(object.id.kind, NDK_OBJECT_TYPE::MR | NDK_OBJECT_TYPE::MW) {
            self.found(Finding::WrongKind, node, event.function, format_args!("{} is no region or window", object.id));
            return;
        }
        let Some(mr) = body!(object, Mr) else { return };
        let now = mr.registration.with(|registration| *registration);
        if !mr.is_fast || now.was_invalidated || now.state == RegionState::New {
            let kind = if mr.is_fast { "for fast registration" } else { "plain" };
            let what = format_args!("{} is {kind} and {:?}", object.id, now.state);
            self.found(Finding::RegionState, node, event.function, what);
        }
    }

    /// A post has succeeded.
    #[inline(always)]
    pub(super) fn posted(event: &Event<'_, State<O>>) {
        match (event.function, event.args) {
            (Function::Invalidate, _) => {
                if let Some(region) = event.related[0] {
                    Self::invalidated(region.state);
                }
            }
            (Function::Read, Args::Transfer { sgl, flags, .. }) if op_flags::invalidates_read_sink(flags) => {
                Self::sink_invalidated(event.object.state, sgl.elements());
            }
            _ => {}
        }
    }

    /// A read has been posted that invalidates its sink.
    #[inline(never)]
    fn sink_invalidated(node: &State<O>, elements: &[NDK_SGE]) {
        let flags = node.adapter_node().map_or(0, |adapter| adapter.info.AdapterFlags);
        let first = elements.first().filter(|_| flags & LOCAL_INVALIDATE != 0);
        match first.and_then(|element| region_of(node, element.MemoryRegionToken)) {
            Some(region) => Self::invalidated(&region),
            // Whatever region that was, it is not known which one.
            None => {
                if let Some(qp) = body!(node, Qp) {
                    qp.mark_over();
                }
            }
        }
    }

    fn invalidated(region: &State<O>) {
        if body!(region, Mr).is_some_and(|mr| mr.is_fast) {
            let _ = region.change(|registration| {
                registration.state = RegionState::Initialised;
                registration.was_invalidated = true;
                registration.is_unsure = false;
            });
        }
    }

    /// A post of a fast registration has failed: the region is as it was.
    #[inline(never)]
    pub(super) fn fast_register_failed(region: Option<ObjectRef<'_, State<O>>>, call: u64) {
        let Some(region) = region else { return };
        let _ = region.state.change(|registration| {
            if registration.call == call && registration.state == RegionState::Registered {
                registration.state = registration.before;
            }
        });
    }

    /// The peer of the queue pairs with this context has invalidated a token. `false` if it is not known whose it is.
    pub(super) fn invalidated_by_peer(cq: &State<O>, context: usize, token: u32) -> bool {
        let Some(cq) = body!(cq, Cq) else { return false };
        let qp = cq.qps.with(|qps| qps.iter().find(|there| there.context == context).map(|there| there.node.clone()));
        let Some((qp, adapter)) = qp.as_ref().and_then(|qp| Some((qp, qp.adapter_node()?))) else { return false };
        let is_it = |node: &&State<O>| {
            let has_it = |mr: &MrNode<O>| mr.registration.with(|now| now.remote_token == Some(token));
            same_domain(node.parent.as_ref(), qp.parent.as_ref()) && body!(node, Mr).is_some_and(has_it)
        };
        let region = adapter.fast.with(|regions| regions.iter().find(is_it).cloned());
        if let Some(region) = &region {
            Self::invalidated(region);
        }
        region.is_some()
    }

    pub(super) fn mapping_built(event: &Event<'_, State<O>>) {
        if let Some(adapter) = event.object.state.adapter_node()
            && event.outcome.status().is_success()
        {
            adapter.mappings.fetch_add(1, SeqCst);
        }
    }

    pub(super) fn release_mapping(&self, event: &Event<'_, State<O>>) {
        let node = event.object.state;
        let Some(adapter) = node.adapter_node() else { return };
        if let Args::ReleaseLam { mapping, pages } = event.args {
            self.mapping_must_not_be_in_use(event, mapping, pages);
        }
        if adapter.mappings.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_err() {
            self.found(Finding::Mapping, node, event.function, format_args!("no mapping is built"));
        }
    }

    /// A mapping of so many pages is released: none of the fast registrations that got their pages from its list may be in force.
    fn mapping_must_not_be_in_use(&self, event: &Event<'_, State<O>>, mapping: usize, pages: u32) {
        let Some(adapter) = event.object.state.adapter_node() else { return };
        let list = mapping..mapping.saturating_add(NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages));
        let is_one = |node: &&State<O>| {
            let is_one = |now: &mut Registration| now.state == RegionState::Registered && list.contains(&now.list);
            body!(node, Mr).is_some_and(|mr| mr.registration.with(is_one))
        };
        let region = adapter.fast.with(|regions| regions.iter().find(is_one).cloned());
        if let Some(region) = region
            && Self::is_in_force(&region)
        {
            let what = format_args!("{} is registered with its pages, and was not invalidated", region.id);
            self.found(Finding::MappingInUse, event.object.state, event.function, what);
        }
    }

    /// It is certain that this region is registered.
    fn is_in_force(node: &State<O>) -> bool {
        let (Some(mr), Some(pd)) = (body!(node, Mr), node.domain()) else { return false };
        let now = mr.registration.with(|registration| *registration);
        let qp = pd.queues.with(|queues| queues.iter().find(|qp| qp.id.number == now.by).cloned());
        now.state == RegionState::Registered && qp.is_some_and(|qp| Self::is_certain(&qp, &now))
    }

    /// A region is closed: its token stands for nothing.
    pub(super) fn region_closed(node: &Arc<Node<O>>) {
        let Some(mr) = body!(node, Mr) else { return };
        if let Some(token) = mr.registration.with(|registration| registration.token.take()) {
            Self::forget_token(node, token);
        }
    }
}

/// Returns true if the bytes lie within a registration, as far as its base is known.
fn is_within(registration: &Registration, address: u64, length: u64) -> bool {
    if length > registration.length {
        return false;
    }
    let Some(base) = registration.base else { return true };
    address.checked_sub(base).is_some_and(|offset| offset <= registration.length - length)
}
