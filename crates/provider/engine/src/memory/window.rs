//! Memory windows (`NDKPI 5.3`, `7.6`).

use alloc::boxed::Box;
use core::any::Any;

use fallible::{Arc, try_box};
use ntstatus::NtStatus;

use super::{
    Domain, Kind, Posted,
    entry::{Entry, Object},
    fast::MOST_POSTED,
    growing::Growing,
    mr_entry::{MrEntry, Rights, Span},
    region::Region,
    token::Rotation,
    uses::{Client, Uses},
};
use crate::os::Os;

/// Posted binds of a window for which there is room from the beginning.
const ROOM: usize = 4;

/// What a consumer posts (`NDK_FN_BIND`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The address of the window's first byte, among the addresses of its region.
    pub address: u64,
    /// The number of bytes.
    pub length: u64,
    /// What peers may do with the bytes.
    pub rights: Rights,
}

/// A bind that is posted.
pub struct PostedBind<O: Os> {
    remote: u32,
    region: Arc<Region<O>>,
    span: Span,
    rights: Rights,
}

/// A bind that was carried out.
pub struct Binding<O: Os> {
    region: Arc<Region<O>>,
    /// What transfers through the window use besides the window, if the region is for fast registration.
    region_uses: Option<Arc<Uses>>,
    grant: MrEntry<O>,
}

impl<O: Os> PostedBind<O> {
    /// Lets the region know. For every value once, with no lock held.
    pub fn forget(self) {
        let _ = self.region.with(|_, object| {
            object.forget_window();
            Ok(())
        });
    }
}

impl<O: Os> Binding<O> {
    /// Lets the region know. For every value once, with no lock held.
    pub fn unbind(self) {
        let _ = self.region.with(|_, object| {
            object.unbind_window();
            Ok(())
        });
    }
}

/// The state of a window.
pub struct Bindings<O: Os> {
    /// The token that names the window itself. It gives no access.
    own: u32,
    /// The remote token, as of the last post; zero before.
    latest: u32,
    /// What is posted, in the order of the posts.
    posted: Growing<PostedBind<O>>,
    bound: Option<Binding<O>>,
    pub uses: Arc<Uses>,
}

impl<O: Os> Bindings<O> {
    /// What the window gives access to, and what of its region is in use then.
    #[inline]
    pub const fn current(&self) -> Option<(&MrEntry<O>, Option<&Arc<Uses>>)> {
        match &self.bound {
            Some(bound) => Some((&bound.grant, bound.region_uses.as_ref())),
            None => None,
        }
    }

    /// Puts a bind among those posted and gives the window a new token. Takes room of `spare` if that is more than there is.
    ///
    /// `bind` is left alone if it fails, or if the result says how much room there should be.
    fn post(
        &mut self,
        rotation: Rotation<'_>,
        bind: &mut Option<PostedBind<O>>,
        spare: &mut Growing<PostedBind<O>>,
    ) -> Result<Result<u32, usize>, NtStatus> {
        self.posted.adopt(spare);
        let count = self.posted.len();
        if count >= MOST_POSTED {
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        if count >= self.posted.room() {
            return Ok(Err(count * 2));
        }
        let used = |token| {
            let mut posted = self.posted.iter();
            token == self.own
                || self.current().is_some_and(|(grant, _)| grant.remote == token)
                || posted.any(|bind| bind.remote == token)
        };
        let token = rotation.next(count + 2, used).ok_or(NtStatus::INVALID_DEVICE_STATE)?;
        self.latest = token;
        if let Some(bind) = bind.take() {
            self.posted.push(PostedBind { remote: token, ..bind });
        }
        Ok(Ok(token))
    }

    /// Takes out the posted bind whose token this is.
    pub fn take_posted(&mut self, token: u32) -> Result<PostedBind<O>, NtStatus> {
        self.posted.take(|bind| bind.remote == token).ok_or(NtStatus::INVALID_DEVICE_REQUEST)
    }

    /// Takes out the binding in force, if `token` names it: for a peer, by the remote token.
    pub fn end(&mut self, token: u32, by_peer: bool) -> Result<Binding<O>, NtStatus> {
        self.may_end(token, by_peer)?;
        self.bound.take().ok_or(NtStatus::INVALID_DEVICE_REQUEST)
    }

    /// Returns if the binding can be ended by `token`.
    pub fn may_end(&self, token: u32, by_peer: bool) -> Result<(), NtStatus> {
        let own = self.own == token && !by_peer;
        let is_named = self.bound.as_ref().is_some_and(|bound| own || bound.grant.remote == token);
        if is_named { Ok(()) } else { Err(NtStatus::INVALID_DEVICE_REQUEST) }
    }
}

/// A memory window.
///
/// Dropping it ends its binding.
pub struct Window<O: Os> {
    domain: Arc<Domain<O>>,
    /// What names the window itself.
    own: u32,
}

impl<O: Os> Window<O> {
    /// A window of `domain` that is not bound.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(domain: &Arc<Domain<O>>) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_for(domain, ())
    }

    /// [`Window::try_new`] with a client, which is dropped after the window and the last segment that was found through it.
    ///
    /// # Errors
    ///
    /// As [`Window::try_new`].
    pub fn try_new_for(domain: &Arc<Domain<O>>, client: impl Any + Send + Sync) -> Result<Arc<Self>, NtStatus> {
        let table = domain.table();
        let client = Client::try_new(client)?;
        let uses = Uses::try_new(&client)?;
        // The window's own token is known when it has a slot.
        let window = Bindings { own: 0, latest: 0, posted: Growing::with_room(ROOM)?, bound: None, uses };
        let mut window = try_box(window)?;
        table.population().enter(Kind::Window)?;
        let own = table.tokens().insert_rotating(|own| {
            window.own = own;
            Entry { domain: domain.privileged_token(), object: Object::Window(window) }
        });
        let own = own.map_err(|error| {
            table.population().leave(Kind::Window);
            NtStatus::from(error)
        })?;
        // From here on a failure drops the window, which gives its slot back.
        Arc::try_new(Self { domain: domain.clone(), own }).map_err(Into::into)
    }

    /// The window's protection domain.
    #[must_use]
    pub const fn domain(&self) -> &Arc<Domain<O>> {
        &self.domain
    }

    fn with<U>(&self, work: impl FnOnce(Rotation<'_>, &mut Bindings<O>) -> Result<U, NtStatus>) -> Result<U, NtStatus> {
        let done = self.domain.table().tokens().with(self.own, |rotation, entry| match &mut entry.object {
            Object::Window(window) => work(rotation, window),
            Object::Domain | Object::Normal(_) | Object::Fast(_) => Err(NtStatus::INVALID_DEVICE_STATE),
        });
        // The window has its slot as long as it lives.
        done.unwrap_or(Err(NtStatus::INVALID_DEVICE_STATE))
    }

    /// The token for peers: that of the bind posted last. Zero, which is no token, before the first.
    #[must_use]
    pub fn remote_token(&self) -> u32 {
        self.with(|_, window| Ok(window.latest)).unwrap_or(0)
    }

    /// The region that the window is bound to.
    ///
    /// Who closes the window can keep it for as long as the region has to outlive the close (`NDKPI 7.9`).
    #[must_use]
    pub fn bound_region(&self) -> Option<Arc<Region<O>>> {
        self.with(|_, window| Ok(window.bound.as_ref().map(|bound| bound.region.clone()))).ok().flatten()
    }

    /// What names the window in [`Domain::invalidate`], whichever of its bindings is in force then.
    #[must_use]
    pub const fn invalidation_token(&self) -> u32 {
        self.own
    }
}

impl<O: Os> Window<O> {
    /// Takes the window out of the table. Not inlined, so that its entry does not lie on the stack below all that ends with the window.
    #[inline(never)]
    fn leave_table(&self) -> Option<Box<Bindings<O>>> {
        match self.domain.table().tokens().remove_if(self.own, |_| true)?.object {
            Object::Window(bindings) => Some(bindings),
            _ => None,
        }
    }
}

impl<O: Os> Drop for Window<O> {
    fn drop(&mut self) {
        if let Some(mut window) = self.leave_table() {
            window.posted.drain().for_each(PostedBind::forget);
            if let Some(bound) = window.bound.take() {
                bound.unbind();
            }
        }
        self.domain.table().population().leave(Kind::Window);
    }
}

impl<O: Os> Domain<O> {
    //= NDKPI 7.6.1
    /// The first half of a bind, when its request is posted (`NDKPI 7.6`). The window's remote token is the new one when this
    /// returns; what it names can be used after [`Domain::commit`].
    ///
    /// Rights and range are those of the region's registration that was posted last. The region stays, and cannot be
    /// deregistered, until the bind is cancelled or the window invalidated. For the returned value see
    /// [`Domain::prepare_fast_register`].
    ///
    /// # Errors
    ///
    /// Nothing has changed then.
    ///
    /// - `STATUS_ACCESS_VIOLATION`: bytes outside of the region; remote write, and the region lacks local write.
    /// - `STATUS_INVALID_PARAMETER`: region or window of another domain; more bytes than the adapter registers at once.
    /// - `STATUS_INVALID_DEVICE_STATE`: the region is not registered.
    /// - `STATUS_INSUFFICIENT_RESOURCES`: more binds of the window are posted than ever before, and there is no memory for that.
    /// - `STATUS_NO_MORE_ENTRIES`: [`MOST_POSTED`] binds of the window are posted.
    pub fn prepare_bind(&self, window: &Window<O>, region: &Arc<Region<O>>, what: &Bind) -> Result<Posted, NtStatus> {
        let known = self.is(window.domain()) && self.is(region.domain());
        if !known || what.length > self.table().limits().registration {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let span = Span::new(what.address, what.length).ok_or(NtStatus::ACCESS_VIOLATION)?;
        region.with(|_, object| object.post_window(span, what.rights))?;
        let mut bind = Some(PostedBind { remote: 0, region: region.clone(), span, rights: what.rights });
        let mut spare = Growing::new();
        let token = loop {
            // Room is made with no lock held. Others may take it first: then it is made again.
            match window.with(|rotation, window| window.post(rotation, &mut bind, &mut spare)) {
                Ok(Ok(token)) => break Ok(token),
                Ok(Err(room)) => match Growing::with_room(room) {
                    Ok(more) => spare = more,
                    Err(error) => break Err(error.into()),
                },
                Err(status) => break Err(status),
            }
        };
        // What was not posted is forgotten with no lock held.
        bind.into_iter().for_each(PostedBind::forget);
        Ok(Posted { token: token?, post: 0 })
    }

    /// The second half of a bind.
    pub(super) fn carry_out(&self, bind: PostedBind<O>) -> Result<(), NtStatus> {
        let PostedBind { remote, region, span, rights } = bind;
        let (source, region_uses) = region.with(|_, object| object.bind_window(span, rights))?;
        let grant = MrEntry { local: 0, remote, rights, span, source };
        let mut binding = Some(Binding { region, region_uses, grant });
        let bound = self.with_own(remote, |object| {
            if let Object::Window(window) = object
                && window.bound.is_none()
            {
                window.bound = binding.take();
                return Ok(());
            }
            Err(NtStatus::INVALID_DEVICE_REQUEST)
        });
        binding.into_iter().for_each(Binding::unbind);
        bound
    }
}
