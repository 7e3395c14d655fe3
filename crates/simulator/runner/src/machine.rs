//! What a script needs of a kernel.

use std::{io, net::SocketAddr, path::Path};

use network::lockstep::{Exchange, Timed};
use ntstatus::NtStatus;

use crate::{
    faults::RunFaults,
    script::{Asks, Device, Image, Settings},
    worker::Place,
};

/// What a program gets for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of the request.
    pub status: NtStatus,
    /// The bytes of the answer.
    pub bytes: Vec<u8>,
}

/// A request of a program, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Control<'run> {
    /// What it asks for.
    pub asks: Asks,
    /// The control code.
    pub code: u32,
    /// The input, or what is written.
    pub input: &'run [u8],
    /// Bytes of room for output, or how many are read.
    pub output: usize,
    /// Where a read or write begins, in bytes.
    pub offset: i64,
}

/// The sockets of a machine's program. What a call names is there, and of the kind that the call needs.
pub trait Sockets {
    /// Connects to a port, and waits until it is.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    fn connect(&mut self, socket: &str, from: Option<SocketAddr>, to: SocketAddr) -> Result<(), NtStatus>;

    /// Listens for connections.
    ///
    /// # Errors
    ///
    /// What is wrong with the address.
    fn listen(&mut self, socket: &str, at: SocketAddr) -> Result<(), NtStatus>;

    /// Waits for a connection that comes to a socket which listens.
    ///
    /// # Errors
    ///
    /// What the host says, if the network is its own.
    fn accept(&mut self, socket: &str, listener: &str) -> Result<(), NtStatus>;

    /// Makes a socket for datagrams.
    ///
    /// # Errors
    ///
    /// What is wrong with the address.
    fn bind(&mut self, socket: &str, at: SocketAddr) -> Result<(), NtStatus>;

    /// Sends bytes of a stream, or a datagram.
    ///
    /// # Errors
    ///
    /// How the connection has ended, or why nothing can go there.
    fn send(&mut self, socket: &str, bytes: &[u8], to: Option<SocketAddr>) -> Result<(), NtStatus>;

    /// Waits for so many bytes of a stream or for its end, or for a datagram, which has its sender.
    ///
    /// # Errors
    ///
    /// How the connection has ended.
    fn receive(&mut self, socket: &str, count: usize) -> Result<(Option<SocketAddr>, Vec<u8>), NtStatus>;

    /// Ends a stream, of which the other half goes on.
    ///
    /// # Errors
    ///
    /// How the connection has ended before.
    fn end(&mut self, socket: &str) -> Result<(), NtStatus>;

    /// Drops a connection.
    fn abort(&mut self, socket: &str);

    /// Closes a socket.
    fn close_socket(&mut self, socket: &str);

    /// Where drivers listen.
    fn listening(&self) -> Vec<SocketAddr>;
}

/// A kernel with drivers, in which a script is carried out.
///
/// A [`Script`](crate::Script) has been checked before: what a call names is there and in the state that the call needs. A rule
/// that a driver breaks ends the process, with a line of the form `rule broken: NAME: words`.
pub trait Machine: Sockets {
    /// Lets what can fail do so, as the plan says, from now on.
    fn inject(&mut self, plan: RunFaults);

    /// How much has failed because of that.
    fn failures(&self) -> u64;

    /// From now on, has what a driver records of its consumers written to this file if a rule ends the process: the slots, as they lay in
    /// memory.
    fn keep_recording(&mut self, file: &Path);

    /// Writes it now. Nothing is written if nothing was recorded.
    ///
    /// # Errors
    ///
    /// What the file says.
    fn write_recording(&mut self) -> io::Result<()>;

    /// Puts a file on the disk of the drivers, or a folder without bytes, before anything is loaded. The path is from the root of `C:`.
    ///
    /// # Errors
    ///
    /// A path that cannot be one.
    fn put_file(&mut self, path: &str, bytes: Option<&[u8]>) -> Result<(), NtStatus>;

    /// Loads an image.
    ///
    /// # Errors
    ///
    /// What its entry says, or a status for an image that cannot be loaded.
    fn load(&mut self, image: &Image) -> Result<(), NtStatus>;

    /// Unloads it, and checks that nothing of it is left.
    fn unload(&mut self, image: &Image);

    /// Adds a device and starts it. A NIC has its addresses when this returns.
    ///
    /// # Errors
    ///
    /// What its driver says.
    fn start(&mut self, device: &Device) -> Result<(), NtStatus>;

    /// Stops a device and starts it again.
    ///
    /// # Errors
    ///
    /// What its driver says.
    fn restart(&mut self, device: &Device) -> Result<(), NtStatus>;

    /// Sends a device to a power state, 0 to 3.
    ///
    /// # Errors
    ///
    /// What its driver says.
    fn power(&mut self, device: &Device, state: u8) -> Result<(), NtStatus>;

    /// A device sends the message with that number: an interrupt.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_DEVICE_STATE` if no interrupt is connected to it, `STATUS_UNSUCCESSFUL` if its driver says that it was not its own.
    fn interrupt(&mut self, device: &Device, message: u32) -> Result<(), NtStatus>;

    /// Sends a frame by a NIC, and waits until it has come back.
    ///
    /// # Errors
    ///
    /// The status with which it came back, or `STATUS_NOT_SUPPORTED` of a device that is no NIC.
    fn send_frame(&mut self, device: &Device, frame: &[u8]) -> Result<(), NtStatus>;

    /// Waits for a frame that a NIC receives.
    ///
    /// # Errors
    ///
    /// `STATUS_NOT_SUPPORTED` of a device that is no NIC; `STATUS_IO_TIMEOUT` once something was made to fail, and none has come.
    fn receive_frame(&mut self, device: &Device) -> Result<Vec<u8>, NtStatus>;

    /// Removes a device.
    ///
    /// # Errors
    ///
    /// Who said no; then it is still there.
    fn remove(&mut self, device: &Device) -> Result<(), NtStatus>;

    /// Removes a device without asking.
    fn surprise_remove(&mut self, device: &Device);

    /// A number of a device: `index` and `luid`, of a NIC's network interface.
    fn property(&self, device: &str, property: &str) -> Option<u64>;

    /// Opens a device by its symbolic link, or by the first interface of a device (`INTERFACE`): the file on it with that name, which begins
    /// with a backslash, or the device itself if the name is empty.
    ///
    /// # Errors
    ///
    /// What its driver says, or that there is none.
    fn open(&mut self, file: &str, link: &str, path: &str) -> Result<(), NtStatus>;

    /// Closes a file.
    fn close(&mut self, file: &str);

    /// Sends a request.
    fn begin(&mut self, request: &str, file: &str, control: &Control<'_>);

    /// Cancels a request.
    fn cancel(&mut self, request: &str);

    /// Waits for a request.
    fn wait(&mut self, request: &str) -> Answer;

    /// Lets time pass.
    fn sleep(&mut self, microseconds: u64);

    /// From now on the machine is one of several: it has an interface with its addresses in the network between them, and its time goes
    /// on with that of the others. Before anything else.
    fn join(&mut self, place: &Place, exchange: Box<dyn Exchange>);

    /// Waits until every machine has come to the barrier of that name.
    fn meet(&mut self, barrier: &str);

    /// Pulls the machine's cable to the others, for good.
    fn unplug(&mut self);

    /// What the machine has sent to others and has not reported yet, when its script is at its end.
    fn unsent(&mut self) -> Vec<Timed>;

    /// Ends the kernel, and checks that nothing is left in it. A number that depends on every choice of the seed: equal for two runs
    /// that are the same.
    fn finish(self) -> u64;
}

/// Makes machines.
pub trait Machines {
    /// What it makes.
    type Machine: Machine;

    /// A machine in which this seed decides.
    fn machine(&self, seed: u64, settings: Settings) -> Self::Machine;
}
