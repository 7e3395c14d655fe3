//! What one client of an adapter that several share may take, and what it has taken.
//!
//! An adapter's own [limits](crate::Limits) hold for all its clients together. Where these do not trust each other, each has an
//! account: no client takes more than its share of what the adapter has, nor more of the system's memory than its quota. What an
//! object takes is charged to the account as long as the memory is in use, whether the client has a reference to the object or
//! not: a completion queue stays as long as its queue pairs, a region as long as its windows.

use core::sync::atomic::{AtomicU64, Ordering};

use engine::connection::Owner;
use fallible::{AllocError, Arc};

use crate::limits::Resource;

/// What one client may take, over all adapters that it has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of the kernel's memory: objects with their queues, requests that pend, sessions and files.
    pub memory: u64,
    /// Bytes of its own that are locked, counted once for each registration.
    pub locked: u64,
    /// Requests that pend, registrations among them.
    pub requests: u32,
    /// Sessions at a time. A program has one for each copy of the library in it.
    pub sessions: u32,
    /// One part in so many of everything that an adapter has: there are as many clients that all get something.
    pub shares: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { memory: 128 << 20, locked: 1 << 30, requests: 16 << 10, sessions: 8, shares: 4 }
    }
}

/// What is charged to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Bytes of the kernel's memory.
    Memory,
    /// Locked bytes.
    Locked,
    /// Requests that pend.
    Requests,
    /// Sessions.
    Sessions,
    /// Tokens of an adapter: each open adapter, region and window has one.
    Tokens,
    /// What an adapter has a limited amount of.
    Resource(Resource),
}

impl Item {
    const COUNT: usize = 5 + Resource::ALL.len();

    const fn place(self) -> usize {
        match self {
            Self::Memory => 0,
            Self::Locked => 1,
            Self::Requests => 2,
            Self::Sessions => 3,
            Self::Tokens => 4,
            Self::Resource(resource) => 5 + resource as usize,
        }
    }

    /// What messages call the limit.
    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "process_memory",
            Self::Locked => "process_locked_bytes",
            Self::Requests => "process_requests",
            Self::Sessions => "process_sessions",
            Self::Tokens => "process_tokens",
            Self::Resource(resource) => resource.name(),
        }
    }
}

/// A client has no more of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// What the limit is called.
    pub name: &'static str,
    /// How much there is.
    pub most: u64,
}

/// The account of one client.
pub struct Account {
    client: u32,
    quota: Quota,
    taken: [AtomicU64; Item::COUNT],
}

impl Account {
    /// An account to which nothing is charged, of the client with this number.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(client: u32, quota: Quota) -> Result<Arc<Self>, AllocError> {
        Arc::try_new(Self { client, quota, taken: [const { AtomicU64::new(0) }; Item::COUNT] })
    }

    /// The client's number.
    #[must_use]
    pub const fn client(&self) -> u32 {
        self.client
    }

    /// How much is charged.
    #[must_use]
    pub fn taken(&self, item: Item) -> u64 {
        self.taken[item.place()].load(Ordering::Relaxed)
    }

    /// The most that may be charged of an item of which there are `all`; those of the system have a quota.
    fn most(&self, item: Item, all: u64) -> u64 {
        match item {
            Item::Memory => self.quota.memory,
            Item::Locked => self.quota.locked,
            Item::Requests => self.quota.requests.into(),
            Item::Sessions => self.quota.sessions.into(),
            Item::Tokens | Item::Resource(_) => (all / u64::from(self.quota.shares.max(1))).max(1),
        }
    }

    fn take(&self, item: Item, amount: u64, all: u64) -> Result<(), Exhausted> {
        let most = self.most(item, all);
        let more = |now: u64| now.checked_add(amount).filter(|sum| *sum <= most);
        let taken = self.taken[item.place()].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| Exhausted { name: item.name(), most })
    }

    fn give_back(&self, item: Item, amount: u64) {
        self.taken[item.place()].fetch_sub(amount, Ordering::Relaxed);
    }
}

/// Something that is charged to an account, if there is one. Dropping it gives it back. `IRQL <= DISPATCH_LEVEL`.
pub struct Charge {
    account: Option<Arc<Account>>,
    item: Item,
    amount: AtomicU64,
}

impl Charge {
    /// Charges an amount of an item, of which there are `all` where that matters.
    ///
    /// # Errors
    ///
    /// [`Exhausted`].
    pub fn try_new(account: Option<&Arc<Account>>, item: Item, amount: u64, all: u64) -> Result<Self, Exhausted> {
        if let Some(account) = account {
            account.take(item, amount, all)?;
        }
        Ok(Self { account: account.cloned(), item, amount: AtomicU64::new(amount) })
    }

    /// Charges more, so that it is `amount` at least.
    ///
    /// # Errors
    ///
    /// [`Exhausted`]; nothing has changed then.
    pub fn raise(&self, amount: u64) -> Result<(), Exhausted> {
        let Some(account) = &self.account else { return Ok(()) };
        let before = self.amount.load(Ordering::Relaxed);
        let Some(more) = amount.checked_sub(before).filter(|more| *more > 0) else { return Ok(()) };
        account.take(self.item, more, 0)?;
        // Another thread may raise it too: what is charged is the sum, and given back at the end.
        self.amount.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give_back(self.item, *self.amount.get_mut());
        }
    }
}

/// Whose objects are made.
#[derive(Clone, Default)]
pub struct Client {
    /// Who listings say that connections and listeners belong to.
    pub owner: Owner,
    /// What its objects are charged to. `None`: it has the adapter to itself.
    pub account: Option<Arc<Account>>,
}
