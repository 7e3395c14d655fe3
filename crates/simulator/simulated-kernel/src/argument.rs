//! What a driver has the kernel pass to a callback: an address, as a rule, of memory that has to be there when the callback comes.

use crate::{context, pool, report::bug_check, rule::Rule};

/// The argument of a callback, and which block of memory it lies in.
#[derive(Clone, Copy)]
pub struct Argument {
    address: usize,
    /// The number of the block and where it was asked for; `None` if it is in none, or no address.
    block: Option<(u64, usize)>,
}

impl Argument {
    /// The driver says what its callback is to get.
    pub fn of<T>(pointer: *mut T) -> Self {
        let address = pointer.expose_provenance();
        Self { address, block: pool::block_at(address) }
    }

    /// The argument for a callback that is about to be called. Its memory must be what it was.
    pub fn pointer<T>(self, callback: &str) -> *mut T {
        if let Some((number, site)) = self.block
            && pool::block_at(self.address).is_none_or(|(now, _)| now != number)
        {
            let (address, place) = (self.address, context::site_in_words(site));
            let words = "is in memory that was freed since the driver named it";
            bug_check(
                Rule::UseAfterFree,
                format_args!("the argument {address:#x} of {callback} {words}; allocated{place}"),
            );
        }
        std::ptr::with_exposed_provenance_mut(self.address)
    }
}
