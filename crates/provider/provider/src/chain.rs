//! Chains of MDLs, as a registration sees them (`NDKPI 7.4`). One walk for the kernel's MDLs and for a host's.

use ndkpi::NtStatus;

/// The longest chain. One with more MDLs is taken for a circle.
pub const LONGEST: usize = 65_536;

/// One MDL.
#[derive(Clone, Copy, Debug)]
pub struct Link<M> {
    /// The virtual address of its first byte.
    pub address: u64,
    /// The number of its bytes.
    pub length: usize,
    /// The next MDL.
    pub next: Option<M>,
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The virtual address of the first byte.
    pub base: u64,
    /// The number of MDLs with some of the bytes in question. MDLs of no length do not count.
    pub pieces: usize,
}

//= NDKPI 7.4.1
/// Walks a chain. Calls `each` for every MDL that has some of the first `length` bytes, with their number.
///
/// `describe` reads an MDL, or refuses it. The whole chain must be virtually contiguous, also beyond `length`, so it is walked to
/// its end, but no further than [`LONGEST`].
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if there is no chain, if `length` is zero or more than it describes, if an MDL does not begin where
/// the one before ends, if the bytes reach beyond the end of the address space, or if the chain does not end. Those of
/// `describe` and `each`.
pub fn walk<M: Copy>(
    first: Option<M>,
    length: usize,
    mut describe: impl FnMut(M) -> Result<Link<M>, NtStatus>,
    mut each: impl FnMut(M, usize) -> Result<(), NtStatus>,
) -> Result<Walk, NtStatus> {
    let mut next = first.filter(|_| length > 0).ok_or(NtStatus::INVALID_PARAMETER)?;
    let base = describe(next)?.address;
    let (mut end, mut left, mut pieces) = (base, length, 0);
    for _ in 0..LONGEST {
        let link = describe(next)?;
        if link.address != end {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        end = end.checked_add(link.length as u64).ok_or(NtStatus::INVALID_PARAMETER)?;
        let wanted = link.length.min(left);
        if wanted > 0 {
            each(next, wanted)?;
            left -= wanted;
            pieces += 1;
        }
        match link.next {
            Some(link) => next = link,
            None if left == 0 => return Ok(Walk { base, pieces }),
            None => break,
        }
    }
    Err(NtStatus::INVALID_PARAMETER)
}
