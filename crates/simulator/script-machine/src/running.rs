//! A kernel with what a script has made there, by its names.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::Path,
};

use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST,
    NDIS_STATUS, OID_GEN_CURRENT_PACKET_FILTER,
};
use ntstatus::NtStatus;
use runner::{
    Answer, Machine,
    faults::RunFaults,
    machine::Control,
    script::{Asks, Device, DeviceKind, INTERFACE, Image, Interface, RegistryValue},
    worker::Place,
};
use simulated_kernel::{
    Driver, File, Injection, IoFile, IoPending, Kernel, NewInterface, Nic, NicInterface, Pending, PlainDevice,
    Resources, Takes, Value,
    lockstep::{Exchange, Timed},
};

use crate::{Load, NOT_FOUND, TAKEN, sockets::Talking, status};

/// How long, in microseconds, a driver has to see the addresses of its interface: it is told by a callback, and reads the table in a work
/// item.
const ADDRESSES_ARE_SEEN: u64 = 5_000;

/// The work item of a driver that has met a busy machine has longer. One that has not returned by then is a failure to start.
const ADDRESSES_ARE_READ: u64 = 10_000_000;

/// The metric of a script's routes: that of a prefix of an interface's own.
const METRIC: u32 = 256;

enum Started {
    PnP(simulated_kernel::Device),
    Plain(PlainDevice),
    Nic(Nic),
    /// Its driver has asked for no devices.
    Nothing,
}

enum Open {
    Framework(File),
    Wdm(IoFile),
}

enum Request {
    Framework(Pending),
    Wdm(IoPending),
}

/// A kernel with what a script has made there.
pub struct Running<L> {
    load: L,
    drivers: BTreeMap<String, Driver>,
    devices: BTreeMap<String, Started>,
    files: BTreeMap<String, Open>,
    requests: BTreeMap<String, Request>,
    /// Frames that NICs have received, by the names of these.
    frames: BTreeMap<String, VecDeque<Vec<u8>>>,
    /// How many other machines there are.
    others: usize,
    pub(crate) sockets: Talking,
    pub(crate) kernel: Kernel,
}

impl<L> Running<L> {
    pub(crate) const fn new(load: L, kernel: Kernel) -> Self {
        Self {
            load,
            drivers: BTreeMap::new(),
            devices: BTreeMap::new(),
            files: BTreeMap::new(),
            requests: BTreeMap::new(),
            frames: BTreeMap::new(),
            others: 0,
            sockets: Talking::new(),
            kernel,
        }
    }

    /// Adds a device with filters above it, which are drivers of the framework too.
    fn add_stack(&self, driver: &Driver, device: &Device) -> Result<simulated_kernel::Device, NtStatus> {
        let filters: Vec<&Driver> = device.filters.iter().map(|filter| &self.drivers[filter]).collect();
        if filters.iter().any(|filter| filter.takes() != Takes::Devices) {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let resources = Resources { memory: device.resources.memory.clone(), interrupts: device.resources.interrupts };
        driver.add_device_with(&resources, &filters).map_err(status)
    }

    /// Adds an adapter that protocols are bound to, with its addresses.
    fn add_nic(&self, device: &Device) -> Result<Nic, NtStatus> {
        let keywords: Vec<_> = device.keywords.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let Interface { index, luid, alias, routes, .. } = device.interface.clone();
        if self.kernel.network().has_interface(index, luid) {
            return Err(TAKEN);
        }
        let interface = NicInterface { index, luid, alias };
        let nic = self.drivers[&device.image].add_nic_as(&keywords, &interface).map_err(ndis_status)?;
        let types = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST | NDIS_PACKET_TYPE_MULTICAST;
        let bound = nic.set(OID_GEN_CURRENT_PACKET_FILTER, &types.to_le_bytes()).status;
        if bound != NDIS_STATUS::SUCCESS {
            nic.remove();
            return Err(ndis_status(bound));
        }
        for (address, prefix) in &device.addresses {
            self.kernel.network().add_address(nic.if_index(), *address, *prefix);
        }
        for (prefix, length) in routes {
            self.kernel.network().add_route(prefix, length, nic.if_index(), METRIC);
        }
        self.kernel.sleep(ADDRESSES_ARE_SEEN);
        if !self.kernel.wait_for_work_items(ADDRESSES_ARE_READ) {
            nic.remove();
            return Err(NtStatus::IO_TIMEOUT);
        }
        Ok(nic)
    }
}

const fn ndis_status(status: NDIS_STATUS) -> NtStatus {
    NtStatus::from_bits(status.0.cast_unsigned())
}

fn value(value: &RegistryValue) -> Value {
    match value {
        RegistryValue::Number(number) => Value::Number(*number),
        RegistryValue::Long(number) => Value::Long(*number),
        RegistryValue::Text(text) => Value::text(text),
        RegistryValue::Texts(texts) => Value::list(&texts.iter().map(String::as_str).collect::<Vec<_>>()),
        RegistryValue::Binary(bytes) => Value::Binary(bytes.clone()),
    }
}

/// Takes out what a checked script names.
fn take<T>(map: &mut BTreeMap<String, T>, name: &str) -> T {
    map.remove(name).unwrap_or_else(|| panic!("the script has checked `{name}`"))
}

impl<L: Load> Machine for Running<L> {
    fn inject(&mut self, plan: RunFaults) {
        self.kernel.inject(match plan {
            RunFaults::None => Injection::None,
            RunFaults::Nth(number) => Injection::Nth(number),
            RunFaults::EachSite => Injection::EachSite,
        });
    }

    fn failures(&self) -> u64 {
        self.kernel.faults_injected()
    }

    fn keep_recording(&mut self, file: &Path) {
        self.kernel.keep_recording(file);
    }

    fn write_recording(&mut self) -> io::Result<()> {
        self.kernel.write_recording()
    }

    fn put_file(&mut self, path: &str, bytes: Option<&[u8]>) -> Result<(), NtStatus> {
        self.kernel.put_file(path, bytes).map_err(status)
    }

    fn load(&mut self, image: &Image) -> Result<(), NtStatus> {
        let values: Vec<_> = image.registry.iter().map(|(name, of)| (name.as_str(), value(of))).collect();
        let driver = self.load.load(&self.kernel, image, &values)?;
        self.drivers.insert(image.name.clone(), driver);
        Ok(())
    }

    fn unload(&mut self, image: &Image) {
        take(&mut self.drivers, &image.name).unload();
    }

    fn start(&mut self, device: &Device) -> Result<(), NtStatus> {
        let driver = &self.drivers[&device.image];
        let kind = match (device.kind, driver.takes()) {
            (DeviceKind::Registered, Takes::Adapters) => DeviceKind::Nic,
            (DeviceKind::Registered, Takes::Devices | Takes::PlainDevices) => DeviceKind::PnP,
            (kind, _) => kind,
        };
        let started = match kind {
            DeviceKind::Registered => Started::Nothing,
            DeviceKind::PnP
                if driver.takes() == Takes::PlainDevices
                    && !(device.filters.is_empty() && device.resources == runner::script::Resources::default()) =>
            {
                return Err(NtStatus::NOT_SUPPORTED);
            }
            DeviceKind::PnP if driver.takes() == Takes::PlainDevices => {
                Started::Plain(driver.add_plain_device().map_err(status)?)
            }
            DeviceKind::PnP => Started::PnP(self.add_stack(driver, device)?),
            DeviceKind::Nic => Started::Nic(self.add_nic(device)?),
        };
        self.devices.insert(device.name.clone(), started);
        Ok(())
    }

    fn restart(&mut self, device: &Device) -> Result<(), NtStatus> {
        match &self.devices[&device.name] {
            Started::PnP(device) => device.stop_and_start().map_err(status),
            Started::Plain(device) => device.stop_and_start().map_err(status),
            Started::Nic(nic) => {
                nic.pause();
                nic.restart().map_err(ndis_status)
            }
            Started::Nothing => Ok(()),
        }
    }

    fn power(&mut self, device: &Device, state: u8) -> Result<(), NtStatus> {
        match &self.devices[&device.name] {
            // NDIS counts them from 1.
            Started::Nic(nic) => ndis_status(nic.set_power(NDIS_DEVICE_POWER_STATE(i32::from(state) + 1)).status).ok(),
            Started::Plain(device) => device.set_power(state).map_err(status),
            Started::PnP(_) | Started::Nothing => Err(NtStatus::NOT_SUPPORTED),
        }
    }

    fn interrupt(&mut self, device: &Device, message: u32) -> Result<(), NtStatus> {
        let Started::PnP(device) = &self.devices[&device.name] else { return Err(NtStatus::NOT_SUPPORTED) };
        match device.interrupt(message) {
            Some(true) => Ok(()),
            Some(false) => Err(NtStatus::UNSUCCESSFUL),
            None => Err(NtStatus::INVALID_DEVICE_STATE),
        }
    }

    fn send_frame(&mut self, device: &Device, frame: &[u8]) -> Result<(), NtStatus> {
        let Started::Nic(nic) = &self.devices[&device.name] else { return Err(NtStatus::NOT_SUPPORTED) };
        let came = nic.send(&[frame]).wait();
        came.into_iter()
            .find(|status| *status != NDIS_STATUS::SUCCESS)
            .map_or(Ok(()), |status| Err(ndis_status(status)))
    }

    fn receive_frame(&mut self, device: &Device) -> Result<Vec<u8>, NtStatus> {
        let Started::Nic(nic) = &self.devices[&device.name] else { return Err(NtStatus::NOT_SUPPORTED) };
        let arrived = self.frames.entry(device.name.clone()).or_default();
        if arrived.is_empty() {
            let kernel = &self.kernel;
            kernel.wait_until(|| nic.received() > 0 || kernel.faults_injected() > 0);
            arrived.extend(nic.take_received());
        }
        arrived.pop_front().ok_or(NtStatus::IO_TIMEOUT)
    }

    fn remove(&mut self, device: &Device) -> Result<(), NtStatus> {
        match take(&mut self.devices, &device.name) {
            Started::Nic(nic) => nic.remove(),
            Started::PnP(started) => {
                if let Err((started, refused)) = started.remove() {
                    self.devices.insert(device.name.clone(), Started::PnP(started));
                    return Err(status(refused));
                }
            }
            Started::Plain(started) => {
                if let Err((started, refused)) = started.remove() {
                    self.devices.insert(device.name.clone(), Started::Plain(started));
                    return Err(status(refused));
                }
            }
            Started::Nothing => {}
        }
        Ok(())
    }

    fn surprise_remove(&mut self, device: &Device) {
        match take(&mut self.devices, &device.name) {
            Started::Nic(nic) => nic.surprise_remove(),
            Started::PnP(started) => started.surprise_remove(),
            Started::Plain(started) => started.surprise_remove(),
            Started::Nothing => {}
        }
    }

    fn property(&self, device: &str, property: &str) -> Option<u64> {
        match (self.devices.get(device)?, property) {
            (Started::Nic(nic), "index") => Some(nic.if_index().into()),
            (Started::Nic(nic), "luid") => Some(nic.luid()),
            _ => None,
        }
    }

    fn open(&mut self, file: &str, link: &str, path: &str) -> Result<(), NtStatus> {
        let device = match link.strip_suffix(INTERFACE).and_then(|device| self.devices.get(device)) {
            Some(Started::PnP(device)) => device.links().into_iter().next().ok_or(NOT_FOUND)?,
            Some(_) => return Err(NOT_FOUND),
            None => link.to_owned(),
        };
        let link = format!("{device}{path}");
        let open = match self.kernel.open(&link) {
            Ok(open) => Open::Framework(open),
            Err(bits) if status(bits) == NOT_FOUND => Open::Wdm(self.kernel.open_device(&link).map_err(status)?),
            Err(bits) => return Err(status(bits)),
        };
        self.files.insert(file.to_owned(), open);
        Ok(())
    }

    fn close(&mut self, file: &str) {
        drop(take(&mut self.files, file));
    }

    fn begin(&mut self, request: &str, file: &str, control: &Control<'_>) {
        let pending = match &self.files[file] {
            Open::Framework(file) => Request::Framework(match control.asks {
                Asks::Control => file.begin(control.code, control.input, control.output),
                Asks::Read => file.begin_read_at(control.offset, control.output),
                Asks::Write => file.begin_write_at(control.offset, control.input),
            }),
            Open::Wdm(file) => Request::Wdm(match control.asks {
                Asks::Control => file.begin(control.code, control.input, control.output),
                Asks::Read => file.begin_read_at(control.offset, control.output),
                Asks::Write => file.begin_write_at(control.offset, control.input),
            }),
        };
        self.requests.insert(request.to_owned(), pending);
    }

    fn cancel(&mut self, request: &str) {
        match &self.requests[request] {
            Request::Framework(pending) => pending.cancel(),
            Request::Wdm(pending) => pending.cancel(),
        }
    }

    fn wait(&mut self, request: &str) -> Answer {
        let answer = match take(&mut self.requests, request) {
            Request::Framework(pending) => pending.wait(),
            Request::Wdm(pending) => pending.wait(),
        };
        Answer { status: status(answer.status), bytes: answer.bytes }
    }

    fn sleep(&mut self, microseconds: u64) {
        self.kernel.sleep(microseconds);
    }

    fn join(&mut self, place: &Place, exchange: Box<dyn Exchange>) {
        let network = self.kernel.network();
        network.join(exchange);
        if !place.addresses.is_empty() {
            let (index, _) = network.add_interface(&NewInterface::ethernet("Network"));
            for (address, prefix) in &place.addresses {
                network.add_address(index, *address, *prefix);
            }
        }
        for (name, address) in &place.names {
            network.add_name(name, *address);
        }
        self.others = place.others;
    }

    fn meet(&mut self, barrier: &str) {
        self.kernel.network().meet(barrier, self.others);
    }

    fn unplug(&mut self) {
        self.kernel.network().unplug();
    }

    fn unsent(&mut self) -> Vec<Timed> {
        self.kernel.network().unsent()
    }

    fn finish(self) -> u64 {
        let hash = self.kernel.trace_hash();
        drop(self.kernel);
        hash
    }
}
