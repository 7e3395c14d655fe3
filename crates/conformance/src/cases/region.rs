//! LOST FILE, to be written again by its author: the region.rs that was here, made at 11:27 and not committed, was
//! overwritten by mistake at 11:29:44 by the author of `registration.rs` and `protection.rs`. It could not be recovered.
//! What replaced it is in `registration.rs`. Please do not commit this file as it is.

use crate::case::Case;

pub const CASES: &[Case] = &[];
