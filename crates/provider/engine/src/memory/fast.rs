//! Fast registration (`NDKPI 7.4`): regions that are registered and invalidated by requests of a queue.
//!
//! A region has a few *sheets*, made when it is initialised. A post fills one; when its request is carried out the sheet
//! becomes the current registration, and an invalidation frees it. So the registrations that a consumer has posted, one
//! after another with invalidations between them, can wait for their turn without an allocation.
//!
//! One sheet has room for all pages of a registration. The others have room for a sixteenth, in *runs* of pages that follow each
//! other: the pages of one `NdkBuildLam` are one run, however many there are. With room for all pages in each, a region would take
//! four times the memory that its entries take.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    Domain, MemoryTable, Posted,
    entry::{Object, Windows},
    mapping::{PAGE_SIZE, pages_touched},
    mr_entry::{MrEntry, Rights, Source, Span},
    pages::{Form, PageList, run_at},
    region::{Region, RegionKind},
    token::{Pair, Rotation},
    uses::{Client, Uses},
};
use crate::os::Os;

/// Registrations of one region that may be posted at the same time, the current one and those that transfers still use
/// included.
pub const SHEETS: usize = 4;

/// All sheets but one have room for the region's pages divided by this, in runs of pages.
const SHORT: u32 = 16;
/// Runs of pages that each sheet has room for, however few pages the region has.
pub const SHEET_RUNS: u32 = 8;

/// What a fast registration does to the region's remote token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastTokens {
    /// Nothing: the token that the region has after its initialisation is good for each of its registrations. Consumers
    /// rely on it (`NDKPI 7.4`).
    #[default]
    Stable,
    /// Each post makes a new one, so that a peer that uses or invalidates the token of an earlier registration fails.
    Rotating,
}

/// What a consumer posts (`NDK_FN_FAST_REGISTER`).
#[derive(Clone, Copy, Debug)]
pub struct FastRegister<'a> {
    /// Logical addresses of pages, in any order.
    pub pages: &'a [u64],
    /// Where in the first page the region begins (FBO).
    pub first_byte: u32,
    /// The number of bytes.
    pub length: u64,
    /// The address by which requests will name the first byte: the consumer's choice.
    pub base: u64,
    /// What may be done with the bytes.
    pub rights: Rights,
}

impl FastRegister<'_> {
    /// The arithmetic of `NDKPI 7.4`.
    fn check(&self, room: u32) -> Result<Span, NtStatus> {
        let first_byte = u64::from(self.first_byte);
        let bytes = self.pages.len() as u64 * PAGE_SIZE;
        let sound = self.pages.len() <= room as usize
            // The left side is below the size of a page, so the right one is.
            && self.base % PAGE_SIZE == first_byte
            && bytes.checked_sub(first_byte).is_some_and(|most| self.length <= most)
            && self.pages.iter().all(|page| page % PAGE_SIZE == 0);
        Span::new(self.base, self.length).filter(|_| sound).ok_or(NtStatus::INVALID_PARAMETER)
    }

    /// How many runs of pages the bytes make; `None` if no live mappings cover them.
    fn runs<O: Os>(&self, table: &MemoryTable<O>) -> Option<usize> {
        let page = |index| self.pages.get(index).copied();
        let first_byte = u64::from(self.first_byte);
        table.mappings().cover_runs(|at, most| run_at(page, at, most), first_byte, first_byte + self.length)
    }

    /// Where the bytes are, in `list` if they are scattered.
    fn source<O: Os>(&self, runs: usize, list: Arc<PageList<O>>) -> Source<O> {
        let first_byte = u64::from(self.first_byte);
        if runs > 1 {
            let pages = pages_touched(self.first_byte, self.length);
            list.set(self.pages.get(..usize::try_from(pages).unwrap_or(0)).unwrap_or(self.pages));
            return Source::Pages(list, first_byte);
        }
        // Without bytes there may be no pages. Nothing will look for the address then.
        Source::Logical(self.pages.first().map_or(0, |page| page + first_byte))
    }
}

struct Sheet<O: Os> {
    pages: Arc<PageList<O>>,
    state: State<O>,
}

enum State<O: Os> {
    /// Of use for a new registration, when no transfer uses its pages any more.
    Free,
    /// A post fills it.
    Reserved,
    /// A posted registration, and the number of its post.
    Posted(MrEntry<O>, u32),
    /// The region's registration: one at most.
    Current(MrEntry<O>),
}

impl<O: Os> State<O> {
    const fn grant(&self) -> Option<&MrEntry<O>> {
        match self {
            Self::Free | Self::Reserved => None,
            Self::Posted(grant, _) | Self::Current(grant) => Some(grant),
        }
    }
}

/// A region for fast registration that is initialised.
pub struct Fast<O: Os> {
    /// The local token. It stays the same, so that the consumer needs to ask for it only once.
    pub local: u32,
    /// The remote token. With [`FastTokens::Rotating`] that of the last post.
    pub remote: u32,
    /// How many registrations were posted. It wraps.
    posts: u32,
    pub uses: Arc<Uses>,
    remote_access: bool,
    /// Pages of one registration at most.
    room: u32,
    windows: Windows,
    sheets: [Sheet<O>; SHEETS],
}

impl<O: Os> Fast<O> {
    pub fn try_new(
        table: &Arc<MemoryTable<O>>,
        client: &Arc<Client>,
        room: u32,
        remote_access: bool,
        tokens: Pair,
    ) -> Result<Self, NtStatus> {
        let sheet = |form, room| PageList::try_new(table, form, room).map(|pages| Sheet { pages, state: State::Free });
        let short = || sheet(Form::Runs, (room / SHORT).max(SHEET_RUNS));
        Ok(Self {
            local: tokens.local,
            remote: tokens.remote,
            posts: 0,
            uses: Uses::try_new(client)?,
            remote_access,
            room,
            windows: Windows::default(),
            // Short ones are taken first.
            sheets: [short()?, short()?, short()?, sheet(Form::Pages, room)?],
        })
    }

    /// The registration that is in force.
    #[inline]
    pub fn current(&self) -> Option<&MrEntry<O>> {
        self.sheets.iter().find_map(|sheet| match &sheet.state {
            State::Current(grant) => Some(grant),
            _ => None,
        })
    }

    /// What a window would be bound to, and the count of windows.
    pub fn for_windows(&mut self, posted: bool) -> (Option<&MrEntry<O>>, &mut Windows) {
        let is_latest = |sheet: &&Sheet<O>| matches!(&sheet.state, State::Posted(_, post) if *post == self.posts);
        let latest = self.sheets.iter().find(is_latest).filter(|_| posted);
        let grant = latest.and_then(|sheet| sheet.state.grant());
        let current = self.sheets.iter().find_map(|sheet| match &sheet.state {
            State::Current(grant) => Some(grant),
            _ => None,
        });
        (grant.or(current), &mut self.windows)
    }

    fn reserve(&mut self, rights: Rights, runs: usize) -> Result<(usize, Arc<PageList<O>>), NtStatus> {
        if rights.are_remote() && !self.remote_access {
            return Err(NtStatus::ACCESS_VIOLATION);
        }
        for (index, sheet) in self.sheets.iter_mut().enumerate() {
            if matches!(sheet.state, State::Free) && Arc::is_sole(&sheet.pages) && sheet.pages.has_room(runs) {
                sheet.state = State::Reserved;
                return Ok((index, sheet.pages.clone()));
            }
        }
        Err(NtStatus::NO_MORE_ENTRIES)
    }

    /// Fills a reserved sheet. The token is a new one if the region's tokens rotate.
    fn post(&mut self, sheet: usize, what: (Span, Rights, Source<O>), rotation: Rotation<'_>) -> Posted {
        let (span, rights, source) = what;
        let local = self.local;
        let grants = || self.sheets.iter().filter_map(|sheet| sheet.state.grant());
        let used = |token| token == local || grants().any(|grant| grant.remote == token);
        self.remote = rotation.next(used).unwrap_or(self.remote);
        self.posts = self.posts.wrapping_add(1);
        let (remote, post) = (self.remote, self.posts);
        self.sheets[sheet].state = State::Posted(MrEntry { local, remote, rights, span, source }, post);
        Posted { token: remote, post }
    }

    fn posted(&mut self, post: u32) -> Result<&mut State<O>, NtStatus> {
        let found = self.sheets.iter_mut().map(|sheet| &mut sheet.state);
        let mut found = found.filter(|state| matches!(state, State::Posted(_, number) if *number == post));
        found.next().ok_or(NtStatus::INVALID_DEVICE_REQUEST)
    }

    /// Puts the registration with this number in force.
    pub fn commit(&mut self, post: u32) -> Result<(), NtStatus> {
        let registered = self.current().is_some();
        let state = self.posted(post)?;
        match core::mem::replace(state, State::Free) {
            State::Posted(grant, _) if !registered => {
                *state = State::Current(grant);
                Ok(())
            }
            _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// Forgets the posted registration with this number.
    pub fn cancel(&mut self, post: u32) {
        if let Ok(state) = self.posted(post) {
            *state = State::Free;
        }
    }

    /// Ends the registration in force, if `token` is one of its tokens: for a peer, the remote one.
    pub fn end(&mut self, token: u32, by_peer: bool) -> Result<(), NtStatus> {
        let (local, bound) = (self.local, self.windows.bound);
        for sheet in &mut self.sheets {
            if let State::Current(grant) = &sheet.state
                && (grant.remote == token || (local == token && !by_peer))
            {
                if bound != 0 {
                    return Err(NtStatus::DEVICE_BUSY);
                }
                sheet.state = State::Free;
                return Ok(());
            }
        }
        Err(NtStatus::INVALID_DEVICE_REQUEST)
    }
}

impl<O: Os> Domain<O> {
    /// The first half of a fast registration, when its request is posted (`NDKPI 7.4`). The region's remote token
    /// stays the same, or is the new one when this returns ([`FastTokens`]); what it names can be used after
    /// [`Domain::commit`].
    ///
    /// The request that is posted then keeps the returned value, and gives it to [`Domain::commit`] when it is carried out or
    /// to [`Domain::cancel`] if it is not. Costs a look-up for each run of pages that follow each other.
    ///
    /// # Errors
    ///
    /// Nothing has changed then.
    ///
    /// - `STATUS_INVALID_PARAMETER`: the region is of another domain; more pages than it was initialised for; a page that is not
    ///   page-aligned; the first byte not in the first page, more bytes than the pages have, a base that differs from the
    ///   first byte within its page or so high that addresses would wrap.
    /// - `STATUS_ACCESS_VIOLATION`: remote rights for a region that was initialised without remote access; bytes that no live
    ///   mapping covers.
    /// - `STATUS_INVALID_DEVICE_REQUEST`: the region is for registration only. `STATUS_INVALID_DEVICE_STATE`: it is not
    ///   initialised.
    /// - `STATUS_NO_MORE_ENTRIES`: [`SHEETS`] registrations of the region are posted, in force, or used by transfers in progress; or
    ///   one, and both it and this one have more runs of pages than a sixteenth of the region's pages, and than [`SHEET_RUNS`].
    pub fn prepare_fast_register(&self, region: &Region<O>, what: &FastRegister<'_>) -> Result<Posted, NtStatus> {
        if !self.is(region.domain()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let room = region.with_fast(|_, fast| Ok(fast.room))?;
        let span = what.check(room)?;
        let runs = what.runs(self.table()).ok_or(NtStatus::ACCESS_VIOLATION)?;
        let (sheet, list) = region.with_fast(|_, fast| fast.reserve(what.rights, runs))?;
        let source = what.source(runs, list);
        let rights = self.table().in_force(what.rights);
        region.with_fast(|rotation, fast| Ok(fast.post(sheet, (span, rights, source), rotation)))
    }
}

impl<O: Os> Region<O> {
    /// Works on the state of a region for fast registration.
    pub(super) fn with_fast<U>(
        &self,
        work: impl FnOnce(Rotation<'_>, &mut Fast<O>) -> Result<U, NtStatus>,
    ) -> Result<U, NtStatus> {
        if self.kind() == RegionKind::Normal {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        self.with(|rotation, object| match object {
            Object::Fast(Some(fast)) => work(rotation, fast),
            Object::Fast(None) | Object::Domain | Object::Normal(_) | Object::Window(_) => {
                Err(NtStatus::INVALID_DEVICE_STATE)
            }
        })
    }
}
