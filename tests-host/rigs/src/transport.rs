//! Requests of a program to a driver in the simulated kernel.

use control::client::{Answer, DeviceControl, Refusal};
use simulated_kernel::{
    File, IoFile,
    wdk::{
        STATUS_BUFFER_OVERFLOW, STATUS_DEVICE_BUSY, STATUS_DEVICE_NOT_READY, STATUS_INVALID_DEVICE_REQUEST,
        STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED,
    },
};

/// What the crate does with `DeviceIoControl` on Windows.
pub struct ToKernel(pub File);

impl DeviceControl for ToKernel {
    fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
        carry(&self.0.control(code, input, output.len()), output)
    }
}

/// The same for a device of NDIS, such as the control device of `softndknic`.
pub struct ToNic(pub IoFile);

impl DeviceControl for ToNic {
    fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
        carry(&self.0.control(code, input, output.len()), output)
    }
}

/// A driver's answer, as `DeviceIoControl` gives it to a program.
pub fn carry(answer: &simulated_kernel::Answer, output: &mut [u8]) -> Result<Answer, Refusal> {
    let more = answer.status == STATUS_BUFFER_OVERFLOW;
    if !more && !answer.is_success() {
        return Err(match answer.status {
            STATUS_DEVICE_BUSY => Refusal::Busy,
            STATUS_DEVICE_NOT_READY => Refusal::NotReady,
            STATUS_INVALID_PARAMETER => Refusal::Invalid,
            // One number of Windows' for programs, `ERROR_INVALID_FUNCTION`.
            STATUS_NOT_SUPPORTED | STATUS_INVALID_DEVICE_REQUEST => Refusal::NotSupported,
            other => Refusal::Other(other),
        });
    }
    output[..answer.bytes.len()].copy_from_slice(&answer.bytes);
    Ok(Answer { length: answer.bytes.len(), more })
}
