//! Files: how the open files of one process find their session.
//!
//! A client has several: one to call by, and one for each of its completion ports. The first begins a session, with a key that
//! the program's own generator of random numbers has made; the others join it by that key. A file says one of the two first, once:
//! who guesses wrong has to open another file, and there is nobody to guess 128 bits.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use engine::os::{Os, SpinLock};
use fallible::Arc;
use nd2::{Account, Charge, Item, Quota};
use ndkpi::NtStatus;

use crate::{
    Request, Session, System,
    session::charge,
    wire::{KEY, VERSION, Verb, Word, all},
};

/// A session and the files that belong to it.
struct Member<S: System> {
    key: [u8; KEY],
    session: Arc<Session<S>>,
    files: u32,
}

/// Bytes that an open file takes, the system's part included.
const FILE: u64 = 512;

/// The sessions of a driver.
pub struct Sessions<S: System> {
    system: S,
    quota: Quota,
    /// The most sessions, and the most processes.
    most: usize,
    /// The driver is going.
    over: AtomicBool,
    list: <S::Os as Os>::Lock<Vec<Member<S>>>,
    /// Those of the processes that have files open, or sessions.
    accounts: <S::Os as Os>::Lock<Vec<Arc<Account>>>,
}

impl<S: System> Sessions<S> {
    /// No sessions, and room for `most` of them and as many processes, each of which has the quota.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(system: &S, quota: Quota, most: usize) -> Result<Arc<Self>, NtStatus> {
        let (list, accounts) = (system.os().lock(Vec::new())?, system.os().lock(Vec::new())?);
        let over = AtomicBool::new(false);
        Arc::try_new(Self { system: system.clone(), quota, most, over, list, accounts }).map_err(Into::into)
    }

    /// The account of the process with this number, which is the same as long as anything is charged to it.
    fn account(&self, process: u32) -> Result<Arc<Account>, NtStatus> {
        let new = Account::try_new(process, self.quota)?;
        self.accounts.with(|accounts| {
            if let Some(account) = accounts.iter().find(|account| account.client() == process) {
                return Ok(account.clone());
            }
            // Nobody has one that only this list has, and takes no other reference from here.
            accounts.retain(|account| !Arc::is_sole(account));
            if accounts.len() >= self.most {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            accounts.try_reserve(1).map_err(fallible::AllocError::from)?;
            accounts.push(new.clone());
            Ok(new)
        })
    }

    fn begin(&self, key: [u8; KEY], account: &Arc<Account>) -> Result<Arc<Session<S>>, NtStatus> {
        let session = Session::try_new(&self.system, account)?;
        let added = self.list.with(|list| {
            if list.iter().any(|member| same(&member.key, &key)) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            if list.len() >= self.most {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            list.try_reserve(1).map_err(fallible::AllocError::from)?;
            list.push(Member { key, session: session.clone(), files: 1 });
            Ok(())
        });
        added.map(|()| session)
    }

    fn join(&self, key: [u8; KEY]) -> Result<Arc<Session<S>>, NtStatus> {
        self.list.with(|list| {
            let member = list.iter_mut().find(|member| same(&member.key, &key)).ok_or(NtStatus::INVALID_PARAMETER)?;
            member.files = member.files.checked_add(1).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
            Ok(member.session.clone())
        })
    }

    /// A file of a session is closed. The last one ends it.
    fn leave(&self, session: &Arc<Session<S>>) {
        // Dropped after the lock is released.
        let last = self.list.with(|list| {
            let place = list.iter().position(|member| Arc::ptr_eq(&member.session, session))?;
            list[place].files -= 1;
            (list[place].files == 0).then(|| list.swap_remove(place))
        });
        if let Some(member) = last {
            member.session.end();
        }
    }

    /// Ends every session, and lets none begin: the driver is going. Whatever files that are still open try from now on is
    /// `STATUS_DEVICE_REMOVED`, a request to close something included: everything is closed.
    ///
    /// A request that is being carried out meanwhile ends as its method does for an object that goes: with `STATUS_DEVICE_REMOVED`,
    /// `STATUS_CANCELLED` or `STATUS_INVALID_HANDLE`.
    pub fn end_all(&self) {
        self.over.store(true, Ordering::Release);
        // Downwards: a member that leaves puts the last one, which has ended, into its place.
        for at in (0..self.count()).rev() {
            if let Some(session) = self.list.with(|list| list.get(at).map(|member| member.session.clone())) {
                session.end();
            }
        }
    }

    /// A session of the process with this number. For tests.
    #[must_use]
    pub fn of_process(&self, process: u32) -> Option<Arc<Session<S>>> {
        self.list.with(|list| {
            let mut sessions = list.iter().map(|member| &member.session);
            sessions.find(|session| session.owner().process == Some(process)).cloned()
        })
    }

    /// How many sessions there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.with(|list| list.len())
    }
}

/// Compares keys in a time that does not depend on them.
fn same(a: &[u8; KEY], b: &[u8; KEY]) -> bool {
    a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

enum Membership<S: System> {
    /// It has not said which.
    New,
    /// It is just saying it.
    Entering,
    In(Arc<Session<S>>),
    /// It belongs nowhere: it has said something wrong, or is closed.
    Nowhere,
}

/// An open file.
pub struct File<S: System> {
    sessions: Arc<Sessions<S>>,
    /// Of the process that has opened it.
    account: Arc<Account>,
    _charge: Charge,
    place: <S::Os as Os>::Lock<Membership<S>>,
}

impl<S: System> File<S> {
    /// A file that the process with this number has just opened.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, also at a limit of the process.
    pub fn try_new(sessions: &Arc<Sessions<S>>, process: u32) -> Result<Arc<Self>, NtStatus> {
        let account = sessions.account(process)?;
        let charge = charge(&sessions.system, &account, Item::Memory, FILE)?;
        let place = sessions.system.os().lock(Membership::New)?;
        Arc::try_new(Self { sessions: sessions.clone(), account, _charge: charge, place }).map_err(Into::into)
    }

    /// The session that the file belongs to, if it belongs to one.
    #[must_use]
    pub fn session(&self) -> Option<Arc<Session<S>>> {
        self.place.with(|place| match place {
            Membership::In(session) => Some(session.clone()),
            Membership::New | Membership::Entering | Membership::Nowhere => None,
        })
    }

    /// Carries out a control code that came by this file. `PASSIVE_LEVEL`.
    pub fn serve(&self, code: u32, request: S::Request) {
        if self.sessions.over.load(Ordering::Acquire) {
            return request.complete(NtStatus::DEVICE_REMOVED, 0);
        }
        let verb = Verb::from_code(code);
        if let Some(verb @ (Verb::Begin | Verb::Join)) = verb {
            let entered = self.enter(verb, request.input());
            return request.complete(entered.err().unwrap_or(NtStatus::SUCCESS), 0);
        }
        match self.session() {
            Some(session) => Session::serve(&session, code, request),
            None if verb.is_none() => request.complete(NtStatus::INVALID_DEVICE_REQUEST, 0),
            None => request.complete(NtStatus::INVALID_DEVICE_STATE, 0),
        }
    }

    fn enter(&self, verb: Verb, input: &[u8]) -> Result<(), NtStatus> {
        // Once, whatever comes of it.
        let is_new = self.place.with(|place| {
            let is_new = matches!(place, Membership::New);
            if is_new {
                *place = Membership::Entering;
            }
            is_new
        });
        if !is_new {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        let entered = self.find(verb, input);
        let (place, result) = match entered {
            Ok(session) => (Membership::In(session), Ok(())),
            Err(status) => (Membership::Nowhere, Err(status)),
        };
        // It may have been closed meanwhile.
        let unused = self.place.with(|now| match now {
            Membership::Entering => {
                *now = place;
                None
            }
            _ => Some(place),
        });
        if let Some(Membership::In(session)) = unused {
            self.sessions.leave(&session);
            return Err(NtStatus::CANCELLED);
        }
        result
    }

    /// The session that a file's first word is about.
    fn find(&self, verb: Verb, input: &[u8]) -> Result<Arc<Session<S>>, NtStatus> {
        let Word { version, key } = *all(input)?;
        if version.get() != VERSION || same(&key, &[0; KEY]) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if verb == Verb::Begin { self.sessions.begin(key, &self.account) } else { self.sessions.join(key) }
    }

    /// The last handle of the file is closed: its session ends, if it is the last of it. Requests that came by the file and still
    /// pend end with what they wait for. `PASSIVE_LEVEL`.
    pub fn close(&self) {
        let before = self.place.with(|place| core::mem::replace(place, Membership::Nowhere));
        if let Membership::In(session) = before {
            self.sessions.leave(&session);
        }
    }
}
