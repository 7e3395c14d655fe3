//! Programs: what opens control devices and sends control codes.

use std::sync::{
    Arc,
    atomic::Ordering::{AcqRel, Acquire},
};

use wdk_bindings::{NTSTATUS, STATUS_OBJECT_NAME_NOT_FOUND};

use crate::{
    answer::Answer,
    context,
    kernel::Kernel,
    pages::LockedPages,
    rule::Rule,
    state::{State, lock},
    text, waiting,
    wdf::{
        device::DeviceObject,
        file::FileObject,
        request::{Asks, Ended, Output, RequestObject},
    },
};

/// A control device, opened by a program. Closed when dropped.
pub struct File {
    state: Arc<State>,
    /// The highest of its stack.
    device: Arc<DeviceObject>,
    object: Arc<FileObject>,
    /// The process that has opened it, in whose context it asks.
    process: u32,
}

/// A request on its way.
#[derive(Clone)]
pub struct Pending {
    state: Arc<State>,
    device: Arc<DeviceObject>,
    request: Arc<RequestObject>,
}

impl Kernel {
    /// Opens the device behind a symbolic link, or that of an interface which is enabled, as `CreateFile` does. What stands behind is the name
    /// of a file on the device, for its driver to look at.
    ///
    /// # Errors
    ///
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if there is none, or if it cannot be opened yet; what the driver says of the file.
    pub fn open(&self, link: &str) -> Result<File, NTSTATUS> {
        self.state.open(link)
    }
}

impl State {
    /// [`Kernel::open`].
    pub fn open(self: &Arc<Self>, link: &str) -> Result<File, NTSTATUS> {
        let found = text::parted(link).find_map(|(link, name)| {
            let linked = self.device_linked(link).map(|device| (device, name.to_owned()));
            linked.or_else(|| {
                let (device, reference) = self.device_of_interface(&link.encode_utf16().collect::<Vec<_>>())?;
                Some((device, format!("{reference}{name}")))
            })
        });
        let found = found.filter(|(device, _)| device.finished.load(Acquire));
        let (device, name) = found.ok_or(STATUS_OBJECT_NAME_NOT_FOUND)?;
        device.open_file()?;
        let object = self.create_file(&device, &name).inspect_err(|_| self.close_file(&device))?;
        Ok(File { state: self.clone(), device: device.top(), object, process: context::process() })
    }
}

impl Kernel {
    /// Who may open the control device behind a symbolic link, as its driver has said. `None` if there is none.
    #[must_use]
    pub fn access(&self, link: &str) -> Option<String> {
        let of_the_framework = self.state.device_linked(link).map(|device| device.access.clone());
        of_the_framework.or_else(|| self.state.ndis_device_access(link))
    }
}

impl File {
    /// Sends a control code and waits for the answer.
    #[must_use]
    pub fn control(&self, code: u32, input: &[u8], output: usize) -> Answer {
        self.begin(code, input, output).wait()
    }

    /// Sends a control code. The driver gets it before this returns, if its queue lets it.
    #[must_use]
    pub fn begin(&self, code: u32, input: &[u8], output: usize) -> Pending {
        self.send(Asks::Control, code, input, Output::Copied(output), None)
    }

    /// Sends a control code of a direct method, whose second buffer is in a process's memory.
    #[must_use]
    pub fn begin_locked(&self, code: u32, input: &[u8], pages: LockedPages) -> Pending {
        self.send(Asks::Control, code, input, Output::Locked(pages), None)
    }

    /// Sends a control code without room for an answer, whose end `ended` is told.
    pub(crate) fn begin_reported(&self, code: u32, input: &[u8], ended: Ended) -> Pending {
        self.send(Asks::Control, code, input, Output::Copied(0), Some(ended))
    }

    /// Reads so many bytes at offset zero, as [`File::begin`].
    #[must_use]
    pub fn begin_read(&self, length: usize) -> Pending {
        self.begin_read_at(0, length)
    }

    /// Writes bytes at offset zero, as [`File::begin`].
    #[must_use]
    pub fn begin_write(&self, bytes: &[u8]) -> Pending {
        self.begin_write_at(0, bytes)
    }

    /// Reads so many bytes from an offset on, as [`File::begin`].
    #[must_use]
    pub fn begin_read_at(&self, offset: i64, length: usize) -> Pending {
        self.send_at(offset, Asks::Read, 0, &[], Output::Copied(length), None)
    }

    /// Writes bytes at an offset, as [`File::begin`].
    #[must_use]
    pub fn begin_write_at(&self, offset: i64, bytes: &[u8]) -> Pending {
        self.send_at(offset, Asks::Write, 0, bytes, Output::Copied(0), None)
    }

    fn send(&self, asks: Asks, code: u32, input: &[u8], output: Output, ended: Option<Ended>) -> Pending {
        self.send_at(0, asks, code, input, output, ended)
    }

    fn send_at(
        &self,
        offset: i64,
        asks: Asks,
        code: u32,
        input: &[u8],
        output: Output,
        ended: Option<Ended>,
    ) -> Pending {
        self.object.request_begins();
        let (state, device) = (&self.state, &self.state.first_that_looks(&self.device, asks));
        let code = if asks == Asks::Control { code } else { device.method_of_transfers(asks == Asks::Write) };
        let request = RequestObject::of(asks, code, input, output, Some(self.object.clone())).at(offset);
        let request = Arc::new(request.telling(ended));
        device.requests.fetch_add(1, AcqRel);
        context::in_process(self.process, || state.request_comes(device, &request));
        Pending { state: state.clone(), device: device.clone(), request }
    }
}

impl Pending {
    /// Cancels the request. The driver may complete it nevertheless.
    pub fn cancel(&self) {
        self.state.cancel_for(&self.device, &self.request);
    }

    /// Returns true if the request is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        lock(&self.request.progress).outcome.is_some()
    }

    /// Waits for the answer. A request that is not completed in time is a broken rule.
    #[must_use]
    pub fn wait(self) -> Answer {
        self.complete();
        self.collect()
    }

    fn complete(&self) {
        let end = self.state.machine.now().saturating_add(self.state.request_limit());
        if !waiting::until(&self.state, Some(end), "a request", || self.is_complete()) {
            self.state.dispatcher.stuck(
                Rule::RequestNeverCompleted,
                format_args!("the request {:#x} is not completed", self.request.code),
            );
        }
    }

    /// What has come of a request that is complete.
    pub(crate) fn collect(&self) -> Answer {
        if self.request.collected.swap(true, AcqRel) {
            return Answer { status: wdk_bindings::STATUS_CANCELLED, bytes: Vec::new() };
        }
        self.device.requests.fetch_sub(1, AcqRel);
        let (status, bytes) = self.request.collect();
        Answer { status, bytes }
    }

    /// Waits for the end of a request whose process ends: nobody takes the answer.
    pub(crate) fn abandon(&self) {
        if !self.request.collected.load(Acquire) {
            self.complete();
            let _ = self.collect();
        }
    }

    /// Returns true if whoever wanted to be told of the end was told.
    pub(crate) fn is_reported(&self) -> bool {
        self.request.reported.load(Acquire)
    }

    /// Returns true if somebody has taken the answer.
    pub(crate) fn is_collected(&self) -> bool {
        self.request.collected.load(Acquire)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.state.end_file(&self.object);
    }
}
