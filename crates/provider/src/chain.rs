//! Chains of MDLs, as a registration looks at them (`NDKPI 7.4`): one walk for the kernel's MDLs and for those of a host.

use ndkpi::NtStatus;

/// A chain with more MDLs than this is taken for a circle.
pub const LONGEST: usize = 65_536;

/// What one MDL says.
#[derive(Clone, Copy, Debug)]
pub struct Link<M> {
    /// The virtual address of its first byte.
    pub address: u64,
    /// The number of its bytes.
    pub length: usize,
    /// The MDL behind it.
    pub next: Option<M>,
}

/// What a chain describes, as far as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The virtual address of the first byte.
    pub base: u64,
    /// The number of MDLs that the bytes asked for lie in; those without bytes do not count.
    pub pieces: usize,
}

/// Walks a chain, and calls `each` for every MDL that some of the first `length` bytes lie in, with the number of those.
///
/// `describe` reads an MDL, or refuses it. The whole chain must be virtually contiguous, also beyond `length`. It is walked to its
/// end, which is bounded by [`LONGEST`].
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if there is no chain, `length` is zero or more than it describes, an MDL does not begin where the one
/// before ends, the bytes reach beyond the end of the address space, or the chain does not end; what `describe` and `each` say.
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
