//! Classes of what is made on an adapter.

use core::ffi::c_void;

use fallible::Arc;

use super::{Class, Found, find};
use crate::back_end::{self, BackEnd};

/// A class whose objects are made on an adapter.
pub trait Part: Class {
    /// What it is in front of.
    type BackEnd: BackEnd;
    /// The back end's object.
    type Behind: back_end::Part<Self::BackEnd>;

    /// The back end's object.
    fn behind(&self) -> &Self::Behind;
}

/// Defines a class in front of a type of the back end.
macro_rules! part {
    ($(#[$doc:meta])+ $class:ident: $behind:ident) => {
        $(#[$doc])+
        pub struct $class<B: BackEnd>(pub B::$behind);

        impl<B: BackEnd> $crate::com::part::Part for $class<B> {
            type BackEnd = B;
            type Behind = B::$behind;

            fn behind(&self) -> &B::$behind {
                &self.0
            }
        }
    };
}

pub(super) use part;

/// The object behind a client's pointer, if it is one of the class and of the adapter.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn find_on<C: Part>(
    adapter: &Arc<<C::BackEnd as BackEnd>::Adapter>,
    unknown: *mut c_void,
) -> Option<Found<C>> {
    // SAFETY: `unknown` is null or a COM object (`# Safety`).
    let found = unsafe { find::<C>(unknown) };
    found.filter(|object| Arc::ptr_eq(back_end::Part::adapter(object.behind()), adapter))
}
