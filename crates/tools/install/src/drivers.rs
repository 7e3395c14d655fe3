//! The drivers.

/// A driver of SoftNDK: root-enumerated, so each of its devices is made by who installs it.
#[derive(Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name, and that of its service, its INF and its image.
    pub name: &'static str,
    /// The hardware identifier of its devices.
    pub hardware_id: &'static str,
    /// The class of its devices.
    pub class: &'static str,
    /// The identifier of the class.
    pub class_guid: u128,
    /// A device of it, in words.
    pub device: &'static str,
    /// How many devices of it one machine is given at most.
    pub most: usize,
}

/// The provider with a device interface of its own.
pub static PROVIDER: Driver = Driver {
    name: "softndk",
    hardware_id: r"Root\SoftNDK",
    class: "SoftNDK",
    class_guid: 0x2B3F_1C55_6E0A_4D7B_9C3E_7D5A_41E8_F0B6,
    device: "adapter",
    most: 8,
};

/// The consumer that runs the tests.
pub static NDKTEST: Driver = Driver {
    name: "ndktest",
    hardware_id: r"Root\NdkTest",
    class: "SoftNDK",
    class_guid: 0x2B3F_1C55_6E0A_4D7B_9C3E_7D5A_41E8_F0B6,
    device: "consumer",
    most: 1,
};

/// The virtual NIC.
pub static NIC: Driver = Driver {
    name: "softndknic",
    hardware_id: r"Root\SoftNdkNic",
    class: "Net",
    class_guid: 0x4D36_E972_E325_11CE_BFC1_0800_2BE1_0318,
    device: "virtual NIC",
    most: 8,
};

impl Driver {
    /// All of them, in the order in which they are installed: what another opens comes first.
    pub const ALL: [&'static Self; 3] = [&PROVIDER, &NIC, &NDKTEST];

    /// The name of its INF.
    #[must_use]
    pub fn inf(&self) -> String {
        format!("{}.inf", self.name)
    }
}

/// A driver, and how many devices of it there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The driver.
    pub driver: &'static Driver,
    /// The number of devices. More that are there already stay.
    pub devices: usize,
}
