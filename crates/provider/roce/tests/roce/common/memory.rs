//! An adapter in memory, which notes everything that happens to it.

use std::collections::{HashMap, VecDeque};

use roce::adapter::{Access, Adapter, Completed, Receive, Received, Refused, Remote};

/// Registered memory. Addresses begin at `base`.
#[derive(Clone, Debug)]
pub struct Region {
    pub base: u64,
    pub bytes: Vec<u8>,
    pub read: bool,
    pub write: bool,
}

/// Memory and queues of one side.
#[derive(Default)]
pub struct Memory {
    pub regions: HashMap<u32, Region>,
    /// Receives that wait.
    pub receives: VecDeque<Receive>,
    /// The bytes of receives that were taken.
    pub filled: HashMap<u64, Vec<u8>>,
    pub received: Vec<(Received, Vec<u8>)>,
    /// The local data of requests.
    pub local: HashMap<u64, Vec<u8>>,
    pub completed: Vec<Completed>,
    /// Receives whose memory may not be used, and requests.
    pub unusable: Vec<u64>,
    /// Remote writes that were carried out: key, address, length.
    pub writes: Vec<(u32, u64, u32)>,
}

impl Memory {
    pub fn post_receive(&mut self, context: u64, length: u32) {
        self.receives.push_back(Receive { context, length });
    }

    pub fn register(&mut self, key: u32, base: u64, bytes: Vec<u8>) {
        self.regions.insert(key, Region { base, bytes, read: true, write: true });
    }

    pub fn outcomes(&self) -> Vec<(u64, Result<(), roce::Failure>)> {
        self.completed.iter().map(|completed| (completed.context, completed.outcome)).collect()
    }

    fn find(&mut self, remote: Remote, access: Access) -> Result<&mut [u8], Refused> {
        let region = self.regions.get_mut(&remote.key).ok_or(Refused)?;
        let allowed = match access {
            Access::Read => region.read,
            Access::Write => region.write,
        };
        let start = remote.address.checked_sub(region.base).filter(|_| allowed).ok_or(Refused)?;
        let start = usize::try_from(start).map_err(|_| Refused)?;
        let end = start.checked_add(remote.length as usize).ok_or(Refused)?;
        region.bytes.get_mut(start..end).ok_or(Refused)
    }
}

impl Adapter for Memory {
    fn check(&mut self, _: u32, remote: Remote, access: Access) -> Result<(), Refused> {
        self.find(remote, access).map(|_| ())
    }

    fn read(&mut self, _: u32, key: u32, address: u64, into: &mut [u8]) -> Result<(), Refused> {
        let remote = Remote { key, address, length: into.len() as u32 };
        into.copy_from_slice(self.find(remote, Access::Read)?);
        Ok(())
    }

    fn write(&mut self, _: u32, key: u32, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let remote = Remote { key, address, length: bytes.len() as u32 };
        self.find(remote, Access::Write)?.copy_from_slice(bytes);
        self.writes.push((key, address, remote.length));
        Ok(())
    }

    fn invalidate(&mut self, _: u32, key: u32) -> Result<(), Refused> {
        self.regions.remove(&key).map(|_| ()).ok_or(Refused)
    }

    fn claim_receive(&mut self, _: u32) -> Option<Receive> {
        let receive = self.receives.pop_front()?;
        self.filled.insert(receive.context, vec![0; receive.length as usize]);
        Some(receive)
    }

    fn fill_receive(&mut self, _: u32, receive: &Receive, offset: u32, bytes: &[u8]) -> Result<(), Refused> {
        if self.unusable.contains(&receive.context) {
            return Err(Refused);
        }
        let buffer = self.filled.get_mut(&receive.context).expect("a receive that was claimed");
        buffer[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn complete_receive(&mut self, _: u32, received: Received) {
        let mut bytes = self.filled.remove(&received.context).expect("a receive that was claimed");
        bytes.truncate(received.length as usize);
        self.received.push((received, bytes));
    }

    fn gather(&mut self, _: u32, context: u64, offset: u32, into: &mut [u8]) -> Result<(), Refused> {
        if self.unusable.contains(&context) {
            return Err(Refused);
        }
        into.copy_from_slice(&self.local[&context][offset as usize..][..into.len()]);
        Ok(())
    }

    fn scatter(&mut self, _: u32, context: u64, offset: u32, bytes: &[u8]) -> Result<(), Refused> {
        if self.unusable.contains(&context) {
            return Err(Refused);
        }
        self.local.get_mut(&context).expect("a request")[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn complete(&mut self, _: u32, completed: Completed) {
        self.completed.push(completed);
    }
}
