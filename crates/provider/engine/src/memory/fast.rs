//! Fast registration (`NDKPI 7.4`): regions that are registered and invalidated by requests of a queue.
//!
//! What is posted waits in a queue of the region until its request is carried out: then it becomes the current registration, which an
//! invalidation ends. A registration of pages that do not all follow each other needs a list of them as well. A region is made
//! with room for a few posts and a few lists. One of the lists has room for all pages of a registration. The others have room
//! for a sixteenth, in *runs* of pages that follow each other: the pages of one `NdkBuildLam` are one run, however many there are.
//!
//! Consumers post invalidation and registration in turn, as many as the queues of their queue pairs hold (`NDKPI 7.4`). So a post
//! that finds no room makes it: it allocates, with no lock held. The region keeps that, so that a consumer that goes round
//! allocates no more than once per post of its longest row.

use fallible::Arc;
use ntstatus::NtStatus;

use super::{
    Domain, MemoryTable, Posted,
    entry::{Object, Windows},
    growing::Growing,
    mapping::{PAGE_SIZE, pages_touched},
    mr_entry::{MrEntry, Rights, Source, Span},
    pages::{Form, PageList, run_at},
    region::{Region, RegionKind},
    token::{Pair, Rotation},
    uses::{Client, Uses},
};
use crate::os::Os;

/// Posts of one region, and lists of pages, for which there is room from the beginning.
const ROOM: usize = 4;
/// Registrations of one region that may be posted at the same time, whatever the depths of the queues. Binds of a window likewise.
pub const MOST_POSTED: usize = 1 << 16;

/// All lists but one that a region is made with have room for the region's pages divided by this, in runs of pages.
const SHORT: u32 = 16;
/// Runs of pages that each list has room for, however few pages the region has.
const LEAST_RUNS: u32 = 8;
/// How many lists a post looks at. Mostly the first is free, the one that was not used for longest.
const LOOK: usize = 16;

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
    //= NDKPI 7.4.6
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

    //= NDKPI 7.4.7
    /// Where the bytes are: in `list` if they are scattered.
    fn source<O: Os>(&self, list: Option<Arc<PageList<O>>>) -> Source<O> {
        let first_byte = u64::from(self.first_byte);
        if let Some(list) = list {
            let pages = pages_touched(self.first_byte, self.length);
            list.set(self.pages.get(..usize::try_from(pages).unwrap_or(0)).unwrap_or(self.pages));
            return Source::Pages(list, first_byte);
        }
        // Without bytes there may be no pages. Nothing will look for the address then.
        Source::Logical(self.pages.first().map_or(0, |page| page + first_byte))
    }
}

/// A registration that is posted.
struct PostedRegistration<O: Os> {
    post: u32,
    grant: MrEntry<O>,
}

/// Room that a post has made, and that the region takes if it needs it.
struct Spare<O: Os> {
    posted: Growing<PostedRegistration<O>>,
    lists: Growing<Arc<PageList<O>>>,
    list: Option<Arc<PageList<O>>>,
}

/// What a region has for a post.
enum Reserved<O: Os> {
    /// A place, and a list if one is needed.
    Place(Option<Arc<PageList<O>>>),
    /// Too little room for posts: there should be so much.
    Posts(usize),
    /// No list that is free and long enough. There should be room for so many.
    Lists(usize),
}

//= NDKPI 7.4.5
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
    /// What is posted, in the order of the posts.
    posted: Growing<PostedRegistration<O>>,
    /// Places in `posted` that posts have reserved.
    reserved: usize,
    /// All lists of pages. One is free if nothing else refers to it: no registration, and no transfer.
    lists: Growing<Arc<PageList<O>>>,
    /// The registration in force.
    current: Option<MrEntry<O>>,
}

impl<O: Os> Fast<O> {
    pub fn try_new(
        table: &Arc<MemoryTable<O>>,
        client: &Arc<Client>,
        room: u32,
        remote_access: bool,
        tokens: Pair,
    ) -> Result<Self, NtStatus> {
        let mut lists = Growing::with_room(ROOM)?;
        for _ in 1..ROOM {
            lists.push(PageList::try_new(table, Form::Runs, (room / SHORT).max(LEAST_RUNS))?);
        }
        lists.push(PageList::try_new(table, Form::Pages, room)?);
        Ok(Self {
            local: tokens.local,
            remote: tokens.remote,
            posts: 0,
            uses: Uses::try_new(client)?,
            remote_access,
            room,
            windows: Windows::default(),
            posted: Growing::with_room(ROOM)?,
            reserved: 0,
            lists,
            current: None,
        })
    }

    /// The registration that is in force.
    #[inline]
    pub const fn current(&self) -> Option<&MrEntry<O>> {
        self.current.as_ref()
    }

    /// What a window would be bound to, and the count of windows.
    pub fn for_windows(&mut self, posted: bool) -> (Option<&MrEntry<O>>, &mut Windows) {
        let latest = self.posted.newest().filter(|newest| posted && newest.post == self.posts);
        (latest.map(|newest| &newest.grant).or(self.current.as_ref()), &mut self.windows)
    }

    /// Reserves a place for a post, and a free list if the registration has several runs of pages. Takes what it needs of `spare`.
    fn reserve(&mut self, rights: Rights, runs: usize, spare: &mut Spare<O>) -> Result<Reserved<O>, NtStatus> {
        if rights.are_remote() && !self.remote_access {
            return Err(NtStatus::ACCESS_VIOLATION);
        }
        self.posted.adopt(&mut spare.posted);
        self.lists.adopt(&mut spare.lists);
        let taken = self.posted.len() + self.reserved;
        if taken >= MOST_POSTED {
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        if taken >= self.posted.room() {
            return Ok(Reserved::Posts(taken * 2));
        }
        let mut list = None;
        if runs > 1 {
            list = self.free_list(runs);
            if list.is_none() {
                let known = self.lists.len();
                let Some(new) = spare.list.take_if(|_| known < self.lists.room()) else {
                    return Ok(Reserved::Lists(if known < self.lists.room() { 0 } else { known * 2 }));
                };
                self.lists.push(new.clone());
                list = Some(new);
            }
        }
        self.reserved += 1;
        Ok(Reserved::Place(list))
    }

    fn free_list(&mut self, runs: usize) -> Option<Arc<PageList<O>>> {
        for _ in 0..self.lists.len().min(LOOK) {
            let list = self.lists.turn()?;
            if Arc::is_sole(list) && list.has_room(runs) {
                return Some(list.clone());
            }
        }
        None
    }

    /// Posts in a reserved place. The token is a new one if the region's tokens rotate.
    fn post(&mut self, (span, rights, source): (Span, Rights, Source<O>), rotation: Rotation<'_>) -> Posted {
        let local = self.local;
        let used = |token| {
            let is_current = self.current.as_ref().is_some_and(|grant| grant.remote == token);
            token == local || is_current || self.posted.iter().any(|posted| posted.grant.remote == token)
        };
        self.remote = rotation.next(self.posted.len() + 2, used).unwrap_or(self.remote);
        self.posts = self.posts.wrapping_add(1);
        let (remote, post) = (self.remote, self.posts);
        self.reserved -= 1;
        self.posted.push(PostedRegistration { post, grant: MrEntry { local, remote, rights, span, source } });
        Posted { token: remote, post }
    }

    fn take_posted(&mut self, post: u32) -> Option<MrEntry<O>> {
        self.posted.take(|posted| posted.post == post).map(|posted| posted.grant)
    }

    /// Puts the registration with this number in force.
    pub fn commit(&mut self, post: u32) -> Result<(), NtStatus> {
        let grant = self.take_posted(post).ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        if self.current.is_some() {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        self.current = Some(grant);
        Ok(())
    }

    /// Forgets the posted registration with this number.
    pub fn cancel(&mut self, post: u32) {
        drop(self.take_posted(post));
    }

    /// Returns if the registration in force can be ended by `token`, which has to be one of its tokens: for a peer, the remote one.
    pub fn may_end(&self, token: u32, by_peer: bool) -> Result<(), NtStatus> {
        let is_named = |grant: &MrEntry<O>| grant.remote == token || (grant.local == token && !by_peer);
        if !self.current.as_ref().is_some_and(is_named) {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        if self.windows.bound != 0 {
            return Err(NtStatus::DEVICE_BUSY);
        }
        Ok(())
    }

    /// Ends the registration in force, if it [may](Self::may_end).
    pub fn end(&mut self, token: u32, by_peer: bool) -> Result<(), NtStatus> {
        self.may_end(token, by_peer)?;
        self.current = None;
        Ok(())
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
    /// - `STATUS_INSUFFICIENT_RESOURCES`: more is posted for the region than ever before, and there is no memory for that.
    /// - `STATUS_NO_MORE_ENTRIES`: [`MOST_POSTED`] registrations of the region are posted.
    pub fn prepare_fast_register(&self, region: &Region<O>, what: &FastRegister<'_>) -> Result<Posted, NtStatus> {
        if !self.is(region.domain()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let room = region.with_fast(|_, fast| Ok(fast.room))?;
        let span = what.check(room)?;
        let runs = what.runs(self.table()).ok_or(NtStatus::ACCESS_VIOLATION)?;
        let mut spare = Spare { posted: Growing::new(), lists: Growing::new(), list: None };
        let list = loop {
            // What is missing is made with no lock held. Others may take it first: then it is made again.
            match region.with_fast(|_, fast| fast.reserve(what.rights, runs, &mut spare))? {
                Reserved::Place(list) => break list,
                Reserved::Posts(room) => spare.posted = Growing::with_room(room)?,
                Reserved::Lists(lists) => {
                    spare.list = Some(PageList::try_new(self.table(), Form::Pages, room)?);
                    if lists > 0 {
                        spare.lists = Growing::with_room(lists)?;
                    }
                }
            }
        };
        let source = what.source(list);
        let rights = self.table().in_force(what.rights);
        region.with_fast(|rotation, fast| Ok(fast.post((span, rights, source), rotation)))
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
