//! Programs that open devices of plain WDM and send them control codes.

use std::sync::{
    Arc,
    atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire},
    },
};

use wdk_bindings::{
    FILE_OBJECT, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE,
    NTSTATUS, STATUS_OBJECT_NAME_NOT_FOUND, UNICODE_STRING, USHORT,
};

use super::{
    device::Device,
    irp::Question,
    request::{Done, Request},
};
use crate::{
    answer::Answer,
    context,
    kernel::Kernel,
    rule::Rule,
    state::{State, lock},
    text, waiting,
    wdm::system_thread,
};

/// A device, opened by a program. Closed when dropped.
pub struct IoFile(Arc<Opened>);

/// A file object: there until the last handle is closed and the last request that came by it is complete.
pub struct Opened {
    state: Arc<State>,
    device: Arc<Device>,
    /// The process that has opened it, in whose context it asks.
    process: u32,
    /// The address of the file object, which the driver may keep something in.
    object: usize,
    /// Its name, behind that of the device.
    _name: Box<[u16]>,
    /// Requests that came by it and are not complete, and one more while it is open.
    uses: AtomicU32,
}

/// A request on its way.
#[must_use]
pub struct IoPending {
    state: Arc<State>,
    request: Arc<Request>,
}

impl Kernel {
    /// Opens the device of plain WDM behind a symbolic link, or a file on it, as `CreateFile` does.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if there is none or it cannot be opened yet, or what the driver says.
    pub fn open_device(&self, link: &str) -> Result<IoFile, NTSTATUS> {
        IoFile::open(&self.state, link)
    }
}

impl IoFile {
    /// Opens a device, for a program or a driver.
    ///
    /// # Errors
    ///
    /// As [`Kernel::open_device`].
    pub(crate) fn open(state: &Arc<State>, link: &str) -> Result<Self, NTSTATUS> {
        let found = text::parted(link).find_map(|(link, name)| Some((state.wdm_device(link)?, link, name)));
        let (device, link, name) = found.ok_or(STATUS_OBJECT_NAME_NOT_FOUND)?;
        // The reference string of an interface is a part of the name.
        let reference = state.device_behind_interface(link).map_or_else(String::new, |(_, reference)| reference);
        let mut name: Box<[u16]> = reference.encode_utf16().chain(name.encode_utf16()).collect();
        let bytes = USHORT::try_from(2 * name.len()).unwrap_or(USHORT::MAX);
        let name_of = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_mut_ptr() };
        let object = FILE_OBJECT { FileName: name_of, DeviceObject: device.pointer(), ..FILE_OBJECT::default() };
        let object = Box::into_raw(Box::new(object)).expose_provenance();
        device.users.fetch_add(1, AcqRel);
        let uses = AtomicU32::new(1);
        let opened = Opened { state: state.clone(), device, process: context::process(), object, _name: name, uses };
        let status = opened.send(IRP_MJ_CREATE).wait().status;
        if status < 0 {
            opened.forget();
            return Err(status);
        }
        Ok(Self(Arc::new(opened)))
    }

    pub(super) fn object(&self) -> usize {
        self.0.object
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    fn ask(&self, major: u32, code: u32, input: &[u8], output: usize, offset: i64) -> IoPending {
        self.0.uses.fetch_add(1, AcqRel);
        let of = self.0.clone();
        let done: Done = Arc::new(move || of.request_ended());
        self.0.ask(&Question { major, code, input, output, offset, file: self.0.pointer(), done: Some(done) })
    }

    /// Sends a control code and waits for the answer.
    #[must_use]
    pub fn control(&self, code: u32, input: &[u8], output: usize) -> Answer {
        self.begin(code, input, output).wait()
    }

    /// Sends a control code. The driver gets it before this returns.
    pub fn begin(&self, code: u32, input: &[u8], output: usize) -> IoPending {
        self.ask(IRP_MJ_DEVICE_CONTROL, code, input, output, 0)
    }

    /// Reads so many bytes at offset zero. The driver gets the request before this returns.
    pub fn begin_read(&self, length: usize) -> IoPending {
        self.begin_read_at(0, length)
    }

    /// Writes bytes at offset zero. The driver gets the request before this returns.
    pub fn begin_write(&self, bytes: &[u8]) -> IoPending {
        self.begin_write_at(0, bytes)
    }

    /// Reads so many bytes from an offset on, as [`IoFile::begin_read`].
    pub fn begin_read_at(&self, offset: i64, length: usize) -> IoPending {
        self.ask(IRP_MJ_READ, 0, &[], length, offset)
    }

    /// Writes bytes at an offset, as [`IoFile::begin_write`].
    pub fn begin_write_at(&self, offset: i64, bytes: &[u8]) -> IoPending {
        self.ask(IRP_MJ_WRITE, 0, bytes, 0, offset)
    }
}

impl Opened {
    const fn pointer(&self) -> *mut FILE_OBJECT {
        std::ptr::with_exposed_provenance_mut(self.object)
    }

    fn ask(&self, question: &Question<'_>) -> IoPending {
        let request = context::in_process(self.process, || self.state.call_device(&self.device, question));
        IoPending { state: self.state.clone(), request }
    }

    /// Sends what the file begins or ends with.
    fn send(&self, major: u32) -> IoPending {
        self.ask(&Question { major, code: 0, input: &[], output: 0, offset: 0, file: self.pointer(), done: None })
    }

    /// A request that came by it is complete.
    pub fn request_ended(self: &Arc<Self>) {
        if self.uses.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        // The driver is in the middle of what has completed the request, perhaps at `DISPATCH_LEVEL` or with a mutex.
        let closed = self.clone();
        system_thread::spawn_for_work_item(&self.state, self.device.owner, move || closed.close());
    }

    /// Nobody has the file any more.
    fn close(&self) {
        // A driver without a routine for it says that it does not know it, which the system ignores.
        let _ = self.send(IRP_MJ_CLOSE).wait();
        debug_assert!(self.device.users.load(Acquire) > 0, "a file is a user of its device");
        self.forget();
    }

    fn forget(&self) {
        // SAFETY: made from a box when the file was opened, and not used any more.
        drop(unsafe { Box::from_raw(self.pointer()) });
        self.state.leave_device(&self.device);
    }
}

impl Drop for IoFile {
    fn drop(&mut self) {
        // As above.
        let _ = self.0.send(IRP_MJ_CLEANUP).wait();
        if self.0.uses.fetch_sub(1, AcqRel) == 1 {
            self.0.close();
        }
    }
}

impl IoPending {
    /// Cancels the request. The driver may complete it nevertheless.
    pub fn cancel(&self) {
        self.state.cancel_irp(&self.request);
    }

    /// Returns true if the request is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        lock(&self.request.outcome).is_some()
    }

    /// Waits for the answer. A request that is not completed in time is a broken rule.
    #[must_use]
    pub fn wait(self) -> Answer {
        let end = self.state.machine.now().saturating_add(self.state.request_limit());
        if !waiting::until(&self.state, Some(end), "an IRP", || self.is_complete()) {
            self.state
                .dispatcher
                .stuck(Rule::IrpNeverCompleted, format_args!("the request {:#x} is not completed", self.request.code));
        }
        let outcome = lock(&self.request.outcome).clone();
        outcome.map_or_else(
            || unreachable!("it is complete"),
            |outcome| Answer { status: outcome.status, bytes: outcome.bytes },
        )
    }
}
