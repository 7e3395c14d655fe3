//! Drivers that are linked into this program, as the machine of a script. What an image's `file` is called decides which driver it is.
//!
//! `softndk` and `softndknic` share crates, and whose thread or timer something is would be told from these. So a script has one of them.

use std::{collections::BTreeMap, path::Path};

use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST,
    NDIS_STATUS, OID_GEN_CURRENT_PACKET_FILTER,
};
use ndkpi::NtStatus;
use runner::{
    Answer, Machine,
    machine::{Control, Machines},
    script::{Device, DeviceKind, Image, RegistryValue, Settings},
};
use simulated_kernel::{Driver, Entry, File, IoFile, IoPending, Kernel, Nic, Pending, Value, wdk::NTSTATUS};

/// `STATUS_OBJECT_NAME_NOT_FOUND`: there is no such image.
const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0034);

/// Makes machines in which the sample consumer is that variant.
pub struct Linked {
    pub consumer: Option<Entry>,
}

impl Machines for Linked {
    type Machine = Running;

    fn machine(&self, seed: u64, settings: Settings) -> Running {
        let kernel = Kernel::seeded(seed).processors(settings.processors).preemption(settings.preemption);
        let kernel = kernel.hang_limit(std::time::Duration::from_secs(10)).start();
        Running {
            consumer: self.consumer,
            drivers: BTreeMap::new(),
            devices: BTreeMap::new(),
            files: BTreeMap::new(),
            requests: BTreeMap::new(),
            kernel,
        }
    }
}

enum Started {
    PnP(simulated_kernel::Device),
    Nic(Nic),
}

enum Open {
    Framework(File),
    Wdm(IoFile),
}

enum Request {
    Framework(Pending),
    Wdm(IoPending),
}

/// A kernel with what a script has made there, by its names.
pub struct Running {
    consumer: Option<Entry>,
    drivers: BTreeMap<String, Driver>,
    devices: BTreeMap<String, Started>,
    files: BTreeMap<String, Open>,
    requests: BTreeMap<String, Request>,
    kernel: Kernel,
}

const fn status(bits: NTSTATUS) -> NtStatus {
    NtStatus::from_bits(bits.cast_unsigned())
}

/// Takes out what a checked script names.
fn take<T>(map: &mut BTreeMap<String, T>, name: &str) -> T {
    map.remove(name).unwrap_or_else(|| panic!("the script has checked `{name}`"))
}

impl Running {
    /// The driver of that file, and the crates that it is made of.
    fn driver(&self, file: &Path) -> Option<(Entry, &'static [&'static str])> {
        let stem = file.file_stem()?.to_str()?;
        Some(match stem {
            "softndk" => (softndk::driver_entry, &["softndk", "driver_common", "provider", "engine"]),
            "softndknic" => (softndknic::driver_entry, &["softndknic", "driver_common", "provider", "engine", "cable"]),
            "ndktest" => (ndktest::driver_entry, &["ndktest", "conformance"]),
            "consumer" => (self.consumer?, &[]),
            _ => return None,
        })
    }
}

impl Machine for Running {
    fn load(&mut self, image: &Image) -> Result<(), NtStatus> {
        let (entry, crates) = self.driver(&image.file).ok_or(NOT_FOUND)?;
        if !crates.is_empty() {
            self.kernel.image(&image.service, crates);
        }
        let values = image.registry.iter().map(|(name, value)| match value {
            RegistryValue::Number(number) => Ok((name.as_str(), Value::Number(*number))),
            RegistryValue::Texts(texts) => {
                Ok((name.as_str(), Value::list(&texts.iter().map(String::as_str).collect::<Vec<_>>())))
            }
            _ => Err(NtStatus::NOT_SUPPORTED),
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let driver = self.kernel.load_with(&image.service, entry, &values).map_err(status)?;
        self.drivers.insert(image.name.clone(), driver);
        Ok(())
    }

    fn unload(&mut self, image: &Image) {
        take(&mut self.drivers, &image.name).unload();
    }

    fn start(&mut self, device: &Device) -> Result<(), NtStatus> {
        let driver = &self.drivers[&device.image];
        let started = match device.kind {
            DeviceKind::PnP => Started::PnP(driver.add_device().map_err(status)?),
            DeviceKind::Nic => {
                let keywords: Vec<_> =
                    device.keywords.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                let nic = driver.add_nic(&keywords).map_err(|status| NtStatus::from_bits(status.0.cast_unsigned()))?;
                let types = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST | NDIS_PACKET_TYPE_MULTICAST;
                assert_eq!(nic.set(OID_GEN_CURRENT_PACKET_FILTER, &types.to_le_bytes()).status, NDIS_STATUS::SUCCESS);
                for (address, prefix) in &device.addresses {
                    self.kernel.network().add_address(nic.if_index(), *address, *prefix);
                }
                // The driver reads the table in a work item.
                self.kernel.sleep(5_000);
                Started::Nic(nic)
            }
        };
        self.devices.insert(device.name.clone(), started);
        Ok(())
    }

    fn restart(&mut self, device: &Device) -> Result<(), NtStatus> {
        match &self.devices[&device.name] {
            Started::PnP(device) => device.stop_and_start().map_err(status),
            Started::Nic(nic) => {
                nic.pause();
                nic.restart().map_err(|status| NtStatus::from_bits(status.0.cast_unsigned()))
            }
        }
    }

    fn power(&mut self, device: &Device, state: u8) -> Result<(), NtStatus> {
        let Started::Nic(nic) = &self.devices[&device.name] else { return Err(NtStatus::NOT_SUPPORTED) };
        // NDIS counts them from 1.
        let answer = nic.set_power(NDIS_DEVICE_POWER_STATE(i32::from(state) + 1));
        NtStatus::from_bits(answer.status.0.cast_unsigned()).ok()
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
        }
        Ok(())
    }

    fn surprise_remove(&mut self, device: &Device) {
        match take(&mut self.devices, &device.name) {
            Started::Nic(nic) => nic.surprise_remove(),
            Started::PnP(started) => started.surprise_remove(),
        }
    }

    fn property(&self, device: &str, property: &str) -> Option<u64> {
        match (self.devices.get(device)?, property) {
            (Started::Nic(nic), "index") => Some(nic.if_index().into()),
            _ => None,
        }
    }

    fn open(&mut self, file: &str, link: &str) -> Result<(), NtStatus> {
        let open = match self.kernel.open(link) {
            Ok(open) => Open::Framework(open),
            Err(_) => Open::Wdm(self.kernel.open_device(link).map_err(status)?),
        };
        self.files.insert(file.to_owned(), open);
        Ok(())
    }

    fn close(&mut self, file: &str) {
        drop(take(&mut self.files, file));
    }

    fn begin(&mut self, request: &str, file: &str, control: &Control<'_>) {
        let pending = match &self.files[file] {
            Open::Framework(file) => Request::Framework(file.begin(control.code, control.input, control.output)),
            Open::Wdm(file) => Request::Wdm(file.begin(control.code, control.input, control.output)),
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

    fn finish(self) -> u64 {
        let hash = self.kernel.trace_hash();
        drop(self.kernel);
        hash
    }
}
