//! What lies under a token's number.

use alloc::boxed::Box;

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    fast::Fast,
    mr_entry::{Access, MrEntry, Rights, Source, Span},
    pinned::Pinned,
    translation::TranslationCache,
    uses::{Uses, UsesOf},
    window::Bindings,
};
use crate::os::Os;

/// The object of a token, in the table of all tokens.
pub struct Entry<O: Os> {
    /// The privileged token of the protection domain; zero for a domain itself.
    pub domain: u32,
    pub object: Object<O>,
}

/// The state of an object that has tokens. It lies under the lock of its place in the table.
pub enum Object<O: Os> {
    /// A protection domain: its privileged token is not looked up here.
    Domain,
    /// A normally registered region. There is nothing in the table while it is not registered.
    Normal(Normal<O>),
    /// A region for fast registration, once it is initialised.
    Fast(Option<Box<Fast<O>>>),
    /// A window.
    Window(Box<Bindings<O>>),
}

/// A region that is normally registered.
pub struct Normal<O: Os> {
    pub grant: MrEntry<O>,
    pub windows: Windows,
    /// The [cache](super::translation) that has the grant.
    pub cached_in: Option<Arc<TranslationCache<O>>>,
}

impl<O: Os> Normal<O> {
    /// The registered bytes.
    pub fn pinned(&self) -> Option<&Arc<Pinned<O::Memory>>> {
        match &self.grant.source {
            Source::Range(pinned, _) => Some(pinned),
            Source::Logical(_) | Source::Pages(..) => None,
        }
    }
}

/// How many windows depend on a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Binds that are posted.
    pub posted: u32,
    /// Windows that are bound.
    pub bound: u32,
}

impl Windows {
    /// Returns true if the region's registration has to stay, for a consumer that ends it outside of any queue.
    pub const fn exist(self) -> bool {
        self.posted != 0 || self.bound != 0
    }
}

impl<O: Os> Object<O> {
    /// What `token` stands for, if it allows `access`, and what to hold while it is used.
    #[inline]
    pub fn open(&self, token: u32, access: Access) -> Option<(&MrEntry<O>, UsesOf<'_>)> {
        let (grant, uses) = match self {
            Self::Normal(normal) => (&normal.grant, UsesOf::NONE),
            Self::Fast(fast) => {
                let fast = fast.as_ref()?;
                (fast.current()?, UsesOf { object: Some(&fast.uses), region: None })
            }
            Self::Window(window) => {
                let (grant, region) = window.current()?;
                (grant, UsesOf { object: Some(&window.uses), region })
            }
            Self::Domain => return None,
        };
        grant.allows(token, access).then_some((grant, uses))
    }

    /// Returns true if this is a region, and if normally registered the one whose local token is `token`: slots change hands.
    pub const fn is_region(&self, token: u32) -> bool {
        match self {
            Self::Normal(normal) => normal.grant.local == token,
            Self::Fast(_) => true,
            Self::Domain | Self::Window(_) => false,
        }
    }

    /// The transfers that use the bytes of a fast-registered region or a window.
    pub fn uses(&self) -> Option<&Arc<Uses>> {
        match self {
            Self::Fast(fast) => fast.as_ref().map(|fast| &fast.uses),
            Self::Window(window) => Some(&window.uses),
            Self::Domain | Self::Normal(_) => None,
        }
    }

    /// Returns true if a registration or a binding is in force.
    pub fn is_in_force(&self) -> bool {
        match self {
            Self::Domain => false,
            Self::Normal(_) => true,
            Self::Fast(fast) => fast.as_ref().is_some_and(|fast| fast.current().is_some()),
            Self::Window(window) => window.current().is_some(),
        }
    }

    /// The registration that windows are bound to, as far as it has been carried out or, if `posted`, as far as it has been
    /// posted; and the count of windows.
    fn as_region(&mut self, posted: bool) -> Option<(Option<&MrEntry<O>>, &mut Windows)> {
        match self {
            Self::Normal(normal) => Some((Some(&normal.grant), &mut normal.windows)),
            Self::Fast(Some(fast)) => Some(fast.for_windows(posted)),
            Self::Fast(None) | Self::Domain | Self::Window(_) => None,
        }
    }

    /// A bind to this region is posted.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_STATE` if the region is not registered, `STATUS_ACCESS_VIOLATION` if it does not have the
    /// addresses or the rights.
    pub fn post_window(&mut self, span: Span, rights: Rights) -> Result<(), NtStatus> {
        let (grant, windows) = self.as_region(true).ok_or(NtStatus::INVALID_DEVICE_STATE)?;
        grant.ok_or(NtStatus::INVALID_DEVICE_STATE)?.admit_window(span, rights)?;
        windows.posted += 1;
        Ok(())
    }

    /// A posted bind is carried out: where the window's bytes are, and what else is in use while they are.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_REQUEST` if the region is not registered, `STATUS_ACCESS_VIOLATION` as when it was posted. The bind
    /// counts no more.
    pub fn bind_window(&mut self, span: Span, rights: Rights) -> Result<(Source<O>, Option<Arc<Uses>>), NtStatus> {
        let uses = self.uses().cloned();
        let (grant, windows) = self.as_region(false).ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        windows.posted -= 1;
        let grant = grant.ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        let offset = grant.admit_window(span, rights)?;
        windows.bound += 1;
        Ok((grant.source.at(offset), uses))
    }

    /// A posted bind is forgotten.
    pub fn forget_window(&mut self) {
        if let Some((_, windows)) = self.as_region(false) {
            windows.posted -= 1;
        }
    }

    /// A window is bound no more.
    pub fn unbind_window(&mut self) {
        if let Some((_, windows)) = self.as_region(false) {
            windows.bound -= 1;
        }
    }
}
