//! How a consumer names the local bytes of a request, and how these come into the queues.

use super::{
    Limits, NtStatus, Sge,
    request::{CHUNK, Chunk, INLINE, InlineData, LocalData},
};
use crate::ring::Producer;

/// The local bytes of a request that is being posted.
#[derive(Clone, Debug)]
pub enum Payload<E, I> {
    /// Registered memory, named by a list of elements.
    Elements(E),
    /// Bytes that the request carries itself, in any number of parts. They are taken before the post returns.
    Inline(I),
}

impl<'a, E, I> Payload<E, I>
where
    E: ExactSizeIterator<Item = Sge>,
    I: ExactSizeIterator<Item = &'a [u8]> + Clone,
{
    /// The bytes and how many they are, if they fit into the request: a single element, or few inline bytes in one part. What is
    /// returned is no longer in `self`.
    #[inline]
    pub(super) fn single(&mut self) -> Option<(LocalData, u32)> {
        match self {
            Self::Elements(elements) => {
                let first = if elements.len() == 1 { elements.next() } else { None }?;
                Some((LocalData::Elements { count: 1, first }, first.length))
            }
            Self::Inline(parts) => {
                let only = if parts.len() == 1 { parts.clone().next() } else { None }?;
                let length = u32::try_from(only.len()).ok().filter(|length| *length as usize <= INLINE)?;
                Some((LocalData::Inline(InlineData::new(only)), length))
            }
        }
    }

    /// Puts what does not fit into the request in its queue, whatever the number of elements.
    ///
    /// # Errors
    ///
    /// The queues are unchanged then. `STATUS_DATA_OVERRUN` for too many elements, `STATUS_BUFFER_OVERFLOW` or, if they are
    /// inline, `STATUS_INVALID_BUFFER_SIZE` for too many bytes.
    pub(super) fn push(
        self,
        elements: &mut Producer<Sge>,
        chunks: &mut Producer<Chunk>,
        limits: &Limits,
    ) -> Result<(LocalData, u32), NtStatus> {
        match self {
            Self::Elements(list) => {
                let count = limits.check_count(list.len())?;
                let (first, length) = push_elements(elements, list, limits.transfer)?;
                Ok((LocalData::Elements { count, first }, length))
            }
            Self::Inline(parts) => {
                let taken = push_inline(chunks, parts, limits.inline_bytes());
                let (first, length) = taken.inspect_err(|_| chunks.retract())?;
                Ok((LocalData::Inline(first), length))
            }
        }
    }
}

/// Puts all elements but the first into their queue. Returns the first, if there is one, and the bytes of all.
///
/// # Errors
///
/// `STATUS_BUFFER_OVERFLOW` if these are more than `most`; the queue is unchanged then.
#[inline]
pub(super) fn push_elements(
    queue: &mut Producer<Sge>,
    mut elements: impl Iterator<Item = Sge>,
    most: u32,
) -> Result<(Sge, u32), NtStatus> {
    let first = elements.next().unwrap_or_default();
    let mut length = first.length;
    if length > most {
        return Err(NtStatus::BUFFER_OVERFLOW);
    }
    let mut others = 0_u32;
    for element in elements {
        let longer = length.checked_add(element.length).filter(|longer| *longer <= most);
        let result = longer.ok_or(NtStatus::BUFFER_OVERFLOW);
        let result =
            result.and_then(|longer| if queue.push(element) { Ok(longer) } else { Err(NtStatus::NO_MORE_ENTRIES) });
        length = result.inspect_err(|_| queue.retract())?;
        others += 1;
    }
    if others > 0 {
        queue.publish();
    }
    Ok((first, length))
}

/// Takes the inline bytes of `parts`: the first for the request, the others in their queue. Returns how many there are.
fn push_inline<'a>(
    queue: &mut Producer<Chunk>,
    parts: impl Iterator<Item = &'a [u8]>,
    most: u32,
) -> Result<(InlineData, u32), NtStatus> {
    let (mut first, mut chunk, mut length) = ([0; INLINE], [0; CHUNK], 0);
    for mut part in parts {
        if part.len() > most as usize - length {
            return Err(NtStatus::INVALID_BUFFER_SIZE);
        }
        while !part.is_empty() {
            let room = if length < INLINE { &mut first[length..] } else { &mut chunk[(length - INLINE) % CHUNK..] };
            let (now, later) = part.split_at(part.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            length += now.len();
            part = later;
            let is_full = length > INLINE && (length - INLINE).is_multiple_of(CHUNK);
            if is_full && !queue.push(chunk) {
                return Err(NtStatus::NO_MORE_ENTRIES);
            }
        }
    }
    if length > INLINE {
        if !(length - INLINE).is_multiple_of(CHUNK) && !queue.push(chunk) {
            return Err(NtStatus::NO_MORE_ENTRIES);
        }
        queue.publish();
    }
    // At most `most`, a u32.
    Ok((InlineData::new(&first), u32::try_from(length).unwrap_or(u32::MAX)))
}
