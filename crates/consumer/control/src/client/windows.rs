//! The system's transport to a device.

use std::{
    fs::{File, OpenOptions},
    io,
    os::windows::io::AsRawHandle,
    ptr,
};

use windows_sys::Win32::{
    Foundation::{
        ERROR_ACCESS_DENIED, ERROR_BUSY, ERROR_FILE_NOT_FOUND, ERROR_INVALID_FUNCTION, ERROR_INVALID_PARAMETER,
        ERROR_MORE_DATA, ERROR_NOT_READY, ERROR_NOT_SUPPORTED, ERROR_PATH_NOT_FOUND,
    },
    System::IO::DeviceIoControl,
};

use super::{Answer, DeviceControl, Refusal};

/// An open control device.
pub struct ControlDevice {
    file: File,
}

impl ControlDevice {
    /// Opens a device by its name for programs, such as [`crate::test_device::WIN32_NAME`].
    ///
    /// # Errors
    ///
    /// [`Refusal::NotThere`], [`Refusal::Denied`].
    pub fn open(name: &str) -> Result<Self, Refusal> {
        let file = OpenOptions::new().read(true).write(true).open(name).map_err(|error| refusal(&error))?;
        Ok(Self { file })
    }
}

impl DeviceControl for ControlDevice {
    fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| Refusal::Invalid);
        let (input_length, output_length) = (length(input)?, length(output)?);
        let mut returned = 0;
        // SAFETY: the handle is open, both buffers have the lengths that are said and live until the call returns, which is
        // when the request is complete: the file was not opened for overlapped requests.
        let done = unsafe {
            DeviceIoControl(
                self.file.as_raw_handle(),
                code,
                input.as_ptr().cast(),
                input_length,
                output.as_mut_ptr().cast(),
                output_length,
                &raw mut returned,
                ptr::null_mut(),
            )
        };
        let more = done == 0;
        if more {
            let error = io::Error::last_os_error();
            // `STATUS_BUFFER_OVERFLOW`, a warning: the buffer is full.
            if error.raw_os_error() != Some(ERROR_MORE_DATA.cast_signed()) {
                return Err(refusal(&error));
            }
        }
        Ok(Answer { length: returned as usize, more })
    }
}

fn refusal(error: &io::Error) -> Refusal {
    let number = error.raw_os_error().unwrap_or_default();
    match number.cast_unsigned() {
        ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND => Refusal::NotThere,
        ERROR_ACCESS_DENIED => Refusal::Denied,
        ERROR_BUSY => Refusal::Busy,
        ERROR_NOT_READY => Refusal::NotReady,
        ERROR_INVALID_PARAMETER => Refusal::Invalid,
        ERROR_NOT_SUPPORTED | ERROR_INVALID_FUNCTION => Refusal::NotSupported,
        _ => Refusal::Other(number),
    }
}
