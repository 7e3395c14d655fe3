//! Requests whose buffers the system copies (`METHOD_BUFFERED`), whoever brings them.

use ndkpi::NtStatus;

/// A request that is completed once, at the latest when dropped.
///
/// Input and output are the same memory, so the borrow of the one ends before that of the other begins.
pub trait Buffered: Sized {
    /// The bytes sent along, at least `minimum`.
    ///
    /// # Errors
    ///
    /// `STATUS_BUFFER_TOO_SMALL` and what else the system says.
    fn input(&self, minimum: usize) -> Result<&[u8], NtStatus>;

    /// Room for the answer, at least `minimum` bytes.
    ///
    /// # Errors
    ///
    /// `STATUS_BUFFER_TOO_SMALL` and what else the system says.
    fn output(&mut self, minimum: usize) -> Result<&mut [u8], NtStatus>;

    /// Completes the request, with as many bytes of its output.
    fn complete(self, status: NtStatus, information: usize);

    /// Completes the request without an answer.
    fn finish(self, outcome: Result<(), NtStatus>) {
        self.complete(outcome.err().unwrap_or(NtStatus::SUCCESS), 0);
    }

    /// Answers with `bytes`, all of them or nothing.
    fn answer(self, bytes: &[u8]) {
        self.answer_part(bytes, true);
    }

    /// Answers with as much of `bytes` as there is room for; `STATUS_BUFFER_OVERFLOW`, a warning, if that is not all.
    fn answer_cut(mut self, bytes: &[u8]) {
        match self.output(1).map(|room| room.len().min(bytes.len())) {
            Ok(count) => self.answer_part(&bytes[..count], count == bytes.len()),
            Err(status) => self.complete(status, 0),
        }
    }

    /// Answers with `bytes`, all of them or nothing; `STATUS_BUFFER_OVERFLOW`, a warning, if they are not `all`.
    fn answer_part(mut self, bytes: &[u8], all: bool) {
        match self.output(bytes.len()).map(|room| room[..bytes.len()].copy_from_slice(bytes)) {
            Ok(()) if all => self.complete(NtStatus::SUCCESS, bytes.len()),
            Ok(()) => self.complete(NtStatus::BUFFER_OVERFLOW, bytes.len()),
            Err(status) => self.complete(status, 0),
        }
    }
}
