//! What several themes need: requests that must fail, and mapped pages.

use core::ptr;

use ndkpi::{
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_SGE, NtStatus,
};

use crate::{
    case::{Check, HELD, Verdict},
    client::{Adapter, Buffer, CqCore, FastRegistration, Mapping, Mr, PAGE, PdCore, Remote, Session},
    fixture::{Side, posted},
    text::Text,
};

/// Waits for the failure of a request whose post returned `post`: the post may say it already, or the completion.
///
/// # Errors
///
/// The request succeeds, or another one completes.
pub fn fails(cq: &CqCore<'_>, context: usize, post: NtStatus) -> Check<NtStatus> {
    if post != NtStatus::SUCCESS {
        ensure!(!post.is_success(), "a post returned {post}");
        return Ok(post);
    }
    let done = cq.take_one()?;
    ensure!(
        done.request == context && !done.status.is_success(),
        "request {context:#x} should have failed; this completed: {done:?}"
    );
    Ok(done.status)
}

/// Like [`fails`] for an initiator request of this side.
///
/// # Errors
///
/// Like [`fails`].
pub fn initiator_fails(side: &Side<'_>, context: usize, post: NtStatus) -> Check<NtStatus> {
    fails(side.initiated(), context, post)
}

/// Like [`initiator_fails`], whatever the status.
///
/// # Errors
///
/// Like [`fails`].
pub fn must_fail(side: &Side<'_>, context: usize, post: NtStatus) -> Check {
    initiator_fails(side, context, post).map(|_| ())
}

/// Statuses of failures that NDKPI does not name. The user-mode interface names one, which is the natural choice; another
/// one is worth a note, but breaks no rule.
pub struct Statuses {
    usual: NtStatus,
    others: Text,
}

impl Statuses {
    /// Failures that usually have this status.
    #[must_use]
    pub fn new(usual: NtStatus) -> Self {
        Self { usual, others: Text::default() }
    }

    /// Notes a failure.
    pub fn note(&mut self, what: &str, status: NtStatus) {
        if status != self.usual {
            let separator = if self.others.as_str().is_empty() { "" } else { ", " };
            self.others = Text::new(format_args!("{}{separator}{what}: {status}", self.others));
        }
    }

    /// The rule holds if all failures had the usual status.
    ///
    /// # Errors
    ///
    /// None.
    pub fn verdict(&self) -> Verdict {
        if self.others.as_str().is_empty() {
            return HELD;
        }
        observed!("not {} but {}", self.usual, self.others)
    }
}

/// Looks that a request without completion was refused.
///
/// # Errors
///
/// It was not.
pub fn refused(what: &str, status: NtStatus) -> Check<NtStatus> {
    ensure!(!status.is_success(), "{what} should have failed, but: {status}");
    Ok(status)
}

/// An element that begins at some address.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "64-bit only")]
pub const fn element_at(address: u64, length: u32, token: u32) -> NDK_SGE {
    NDK_SGE::new(ptr::without_provenance_mut(address as usize), length, token)
}

/// A buffer with a mapping, which is released when this is dropped.
pub struct Mapped<'s> {
    /// The bytes.
    pub buffer: &'s Buffer,
    /// Their pages.
    pub mapping: &'s Mapping<'s>,
    session: &'s Session<'s>,
    released: bool,
}

impl<'s> Mapped<'s> {
    /// `bytes` new bytes.
    ///
    /// # Errors
    ///
    /// Something of it fails.
    pub fn new(adapter: &Adapter<'s>, bytes: usize) -> Check<Self> {
        Self::of(adapter, Buffer::new(adapter.session(), bytes)?, bytes)
    }

    /// The first `bytes` bytes of a buffer.
    ///
    /// # Errors
    ///
    /// Something of it fails.
    pub fn of(adapter: &Adapter<'s>, buffer: &'s Buffer, bytes: usize) -> Check<Self> {
        let pages = u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX);
        let (pending, mapping) = adapter.build_lam(buffer, bytes, pages)?;
        pending.succeeds()?;
        Ok(Self { buffer, mapping, session: adapter.session(), released: false })
    }

    /// Releases the mapping.
    ///
    /// # Errors
    ///
    /// It was released: the case is wrong.
    pub fn release(&mut self) -> Check {
        self.released = true;
        self.mapping.release()
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        if !self.released {
            self.session.note(self.mapping.release());
        }
    }
}

/// The address that fast registrations give to the first byte of their first page: one at which nothing is.
pub const BASE: u64 = 0x0000_5EED_0000_0000;

/// All rights that are useful with any adapter.
pub const EVERYTHING: u32 =
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE | NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;

/// A region for fast registration, and mapped pages for it.
pub struct Fast<'s> {
    /// The region, initialised.
    pub mr: Mr<'s>,
    /// The pages.
    pub mapped: Mapped<'s>,
}

impl<'s> Fast<'s> {
    /// A region for as many pages as are mapped for it.
    ///
    /// # Errors
    ///
    /// Something of it fails.
    pub fn new(pd: &'s PdCore<'s>, pages: u32, remote: bool) -> Check<Self> {
        let mapped = Mapped::new(&pd.adapter(), pages as usize * PAGE)?;
        let mr = pd.create_mr(true)?;
        mr.core().initialize(pages, remote)?.succeeds()?;
        Ok(Self { mr, mapped })
    }

    /// All bytes, from [`BASE`] on.
    ///
    /// # Errors
    ///
    /// The mapping is wrong.
    pub fn whole(&self, flags: u32) -> Check<FastRegistration<'_>> {
        let length = self.mapped.buffer.length();
        Ok(FastRegistration { pages: self.mapped.mapping.pages()?, offset: 0, length, base: BASE, flags })
    }

    /// Registers, and waits for the completion.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn register(&self, side: &Side<'s>, what: &FastRegistration<'_>) -> Check {
        posted("NdkFastRegister", side.qp.fast_register(0xFA57, self.mr.core(), what)?)?;
        side.initiator_done(0xFA57).map(|_| ())
    }

    /// Registers all bytes.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn register_whole(&self, side: &Side<'s>, flags: u32) -> Check {
        self.register(side, &self.whole(flags)?)
    }

    /// Invalidates, and waits for the completion.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn invalidate(&self, side: &Side<'s>) -> Check {
        posted("NdkInvalidate", side.qp.invalidate_mr(0x1A7A, self.mr.core(), 0)?)?;
        side.initiator_done(0x1A7A).map(|_| ())
    }

    /// A byte, for the peer.
    ///
    /// # Errors
    ///
    /// The region is closed.
    pub fn remote(&self, offset: i64) -> Check<Remote> {
        Ok(Remote { address: BASE.wrapping_add_signed(offset), token: self.mr.remote_token()? })
    }

    /// An element for own requests.
    ///
    /// # Errors
    ///
    /// The region is closed.
    pub fn element(&self, offset: i64, length: u32) -> Check<NDK_SGE> {
        Ok(element_at(BASE.wrapping_add_signed(offset), length, self.mr.local_token()?))
    }
}

/// Sends a token in a message: inline if the adapter can, else from the second page of the side's region.
///
/// # Errors
///
/// It is not posted.
pub fn send_token(s: &Session<'_>, side: &Side<'_>, context: usize, token: u32) -> Check {
    let bytes = token.to_ne_bytes();
    if s.need_inline(4).is_ok() {
        return posted("NdkSend", side.qp.send_inline(context, &[&bytes], 0)?);
    }
    side.region.buffer.write(PAGE, &bytes)?;
    side.send(context, PAGE.cast_signed(), 4, 0)
}
