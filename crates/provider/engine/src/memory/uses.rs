//! Who uses the bytes of a fast-registered region or a window, so that its close and its invalidation wait for them.
//!
//! ```text
//! region, window -+
//!                 +-> Uses --> Use --> Client     the object that the consumer closes
//! invalidation ---+             ^
//! segment ------------------------+
//! ```
//!
//! A segment that was found through a window that is bound to a fast-registered region holds a [`Use`] of both: whichever of
//! the two the consumer invalidates or closes, in whatever order, it learns of it after the transfer.

use alloc::boxed::Box;
use core::any::Any;

use fallible::{AllocError, Arc, try_box};

/// A value of an object's creator, dropped at the end of the object's use.
pub struct Client {
    _value: Box<dyn Any + Send + Sync>,
}

impl Client {
    /// Keeps `value`.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(value: impl Any + Send + Sync) -> Result<Arc<Self>, AllocError> {
        Arc::try_new(Self { _value: try_box(value)? })
    }
}

/// What a segment holds of the object through which it was found. Its references count the segments. The last one drops the
/// object's client, which tells the close that the bytes are not in use any more (`NDKPI 7.9`).
pub struct Use {
    _client: Arc<Client>,
}

//= NDKPI 7.4.3
/// The segments that were found through one object. Held by the object, and by invalidations of it that have not completed: these
/// have to know also when the object has been closed meanwhile.
pub struct Uses {
    /// The one reference that is not a segment's.
    counted: Arc<Use>,
}

impl Uses {
    /// No segments yet.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(client: &Arc<Client>) -> Result<Arc<Self>, AllocError> {
        Arc::try_new(Self { counted: Arc::try_new(Use { _client: client.clone() })? })
    }

    /// Returns true if no segment is left. Then all that was done with them happened before.
    pub fn are_over(&self) -> bool {
        Arc::is_sole(&self.counted)
    }
}

/// What a segment of an object would have to hold: nothing for normally registered bytes, which say themselves when they are not
/// used any more.
#[derive(Clone, Copy)]
pub struct UsesOf<'a> {
    /// Of the fast-registered region or the window whose token it was.
    pub object: Option<&'a Arc<Uses>>,
    /// Of the fast-registered region that the window is bound to.
    pub region: Option<&'a Arc<Uses>>,
}

impl UsesOf<'_> {
    /// Nothing to hold.
    pub const NONE: Self = Self { object: None, region: None };

    /// The uses themselves, for a segment.
    #[inline]
    pub fn begin(self) -> SegmentUses {
        let begin = |uses: Option<&Arc<Uses>>| uses.map(|uses| uses.counted.clone());
        SegmentUses { _object: begin(self.object), _region: begin(self.region) }
    }
}

/// The uses that a segment holds.
#[derive(Clone)]
pub struct SegmentUses {
    _object: Option<Arc<Use>>,
    _region: Option<Arc<Use>>,
}

impl SegmentUses {
    /// Nothing.
    pub const NONE: Self = Self { _object: None, _region: None };
}

/// The transfers that use the bytes of an object, asked for by an invalidation: see [`Domain::transfers`].
///
/// It keeps the close of the object waiting.
///
/// [`Domain::transfers`]: super::Domain::transfers
pub struct Transfers(pub(super) Option<Arc<Uses>>);

impl Transfers {
    /// Returns true if none is left.
    ///
    /// To be asked after the invalidation: the consumer takes its completion as leave to use the bytes for something else. If
    /// they are not over, other queue pairs are in the middle of requests that will come to an end.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.0.as_ref().is_none_or(|uses| uses.are_over())
    }
}
