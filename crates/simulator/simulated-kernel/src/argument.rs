//! What drivers pass: structures that say their size, identifiers, and the argument of a callback, as a rule the address of memory that
//! has to be there when the callback comes.

use wdk_bindings::GUID;

use crate::{pool, report::bug_check, rule::Rule, sites::site_in_words};

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
            let (address, place) = (self.address, site_in_words(site));
            let freed = pool::freed_in_words(address);
            let words = "is in memory that was freed since the driver named it";
            bug_check(
                Rule::UseAfterFree,
                format_args!("the argument {address:#x} of {callback} {words}; allocated{place}{freed}"),
            );
        }
        std::ptr::with_exposed_provenance_mut(self.address)
    }
}

/// Checks the size that a structure says of itself.
pub fn check_size<T>(size: u32, name: &str) {
    if size as usize != size_of::<T>() {
        bug_check(Rule::BadArgument, format_args!("{name} says that it has {size} bytes"));
    }
}

/// Returns true if two identifiers are the same.
pub fn same(one: &GUID, other: &GUID) -> bool {
    (one.Data1, one.Data2, one.Data3, one.Data4) == (other.Data1, other.Data2, other.Data3, other.Data4)
}

/// An address as something that threads may carry.
#[derive(Clone, Copy)]
pub struct Word(pub usize);

impl Word {
    pub fn of<T>(pointer: *mut T) -> Self {
        Self(pointer.expose_provenance())
    }

    pub const fn pointer<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}
